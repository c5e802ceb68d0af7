package main

import (
	"fmt"
	"math/rand"
	"time"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maker makes clusters by chance. Names and values are few, so that things meet.
type maker struct{ *rand.Rand }

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (m maker) cluster(family string) *Case {
	one := &Case{}
	for at := range 1 + m.Intn(12) {
		one.Nodes = append(one.Nodes, m.node(fmt.Sprintf("n%d", at)))
	}
	one.Namespaces = []*v1.Namespace{{ObjectMeta: meta.ObjectMeta{Name: "default"}}}
	wants := func(name string) bool { return family == name || family == "mixed" && m.Intn(2) == 0 }
	if wants("volumes") {
		m.storage(one)
	}
	if wants("devices") {
		m.devices(one)
	}
	tight, choosy := wants("preemption"), family == "nodes"
	if choosy {
		m.services(one)
	}
	for at := range m.Intn(4 * len(one.Nodes)) {
		pod := m.pod(one, fmt.Sprintf("p%d", at), tight)
		if choosy {
			m.choose(one, pod)
		}
		pod.Spec.NodeName = one.Nodes[m.Intn(len(one.Nodes))].Name
		pod.Status.Phase = v1.PodRunning
		// No two begin at once: who of two equals goes first is chance.
		started := meta.NewTime(begin.Add(time.Duration(m.Intn(5))*time.Hour + time.Duration(at)*time.Second))
		pod.Status.StartTime = &started
		one.Pods = append(one.Pods, pod)
	}
	one.Pod = m.pod(one, "wanted", tight)
	if choosy {
		m.choose(one, one.Pod)
	}
	if tight {
		m.preemption(one)
	}
	return one
}

func (m maker) of(texts ...string) string { return texts[m.Intn(len(texts))] }

// some of so many, none of them twice: a claim that a pod names twice gets a volume or devices twice
// upstream, and fails when they are written; ours are given once.
func (m maker) some(wanted, of int) []int { return m.Perm(of)[:min(wanted, of)] }

// once in so many times.
func (m maker) once(in int) bool { return m.Intn(in) == 0 }

func (m maker) node(name string) *v1.Node {
	node := &v1.Node{ObjectMeta: meta.ObjectMeta{
		Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"kubernetes.io/hostname": name},
	}}
	if !m.once(6) {
		node.Labels["topology.kubernetes.io/zone"] = m.of("a", "b", "c")
		node.Labels["topology.kubernetes.io/region"] = m.of("r", "r", "s")
	}
	if m.once(3) {
		node.Labels["disk"] = m.of("ssd", "hdd")
	}
	if m.once(8) {
		node.Spec.Taints = []v1.Taint{{Key: "k", Value: "v", Effect: v1.TaintEffectNoSchedule}}
	}
	node.Spec.Unschedulable = m.once(15)
	node.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU:    *resource.NewQuantity(int64(2+m.Intn(5)), resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(4+m.Intn(8))<<30, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(int64(3+m.Intn(8)), resource.DecimalSI),
	}
	node.Status.Capacity = node.Status.Allocatable
	return node
}

func (m maker) pod(one *Case, name string, tight bool) *v1.Pod {
	priority := []int32{0, 0, 5, 10, 100}[m.Intn(5)]
	pod := &v1.Pod{
		ObjectMeta: meta.ObjectMeta{
			Name: name, Namespace: "default", UID: types.UID(name + "-uid"),
			CreationTimestamp: meta.NewTime(begin), Labels: map[string]string{"app": m.of("x", "y", "z")},
		},
		Spec: v1.PodSpec{
			SchedulerName: "default-scheduler", Priority: &priority,
			Containers: []v1.Container{{Name: "c", Image: "i:1", Resources: v1.ResourceRequirements{}}},
		},
		Status: v1.PodStatus{Phase: v1.PodPending},
	}
	size := int64(100 * (1 + m.Intn(8)))
	if tight {
		size = int64(500 * (1 + m.Intn(7)))
	}
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{
		v1.ResourceCPU: *resource.NewMilliQuantity(size, resource.DecimalSI),
	}
	if m.once(3) {
		pod.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = *resource.NewQuantity(int64(1+m.Intn(3))<<30, resource.BinarySI)
	}
	if m.once(3) {
		pod.Spec.Tolerations = []v1.Toleration{{Key: "k", Operator: v1.TolerationOpExists}}
	}
	if tight && m.once(4) {
		m.neighbours(pod)
	}
	m.volumesOf(one, pod)
	m.devicesOf(one, pod)
	return pod
}

// neighbours are what a pod wants of others: near, far, or spread.
func (m maker) neighbours(pod *v1.Pod) {
	selector := &meta.LabelSelector{MatchLabels: map[string]string{"app": m.of("x", "y", "z")}}
	key := m.of("kubernetes.io/hostname", "topology.kubernetes.io/zone")
	term := v1.PodAffinityTerm{LabelSelector: selector, TopologyKey: key}
	switch m.Intn(3) {
	case 0:
		pod.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term},
		}}
	case 1:
		pod.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term},
		}}
	default:
		pod.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector,
		}}
	}
}

// preemption: budgets, pods on their way out, and pods that room was made for.
func (m maker) preemption(one *Case) {
	high := int32(50)
	if m.once(8) {
		high = 3
	}
	one.Pod.Spec.Priority = &high
	if m.once(12) {
		never := v1.PreemptNever
		one.Pod.Spec.PreemptionPolicy = &never
	}
	for at := range m.Intn(3) {
		one.Budgets = append(one.Budgets, &policy.PodDisruptionBudget{
			ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("b%d", at), Namespace: "default"},
			Spec:       policy.PodDisruptionBudgetSpec{Selector: &meta.LabelSelector{MatchLabels: map[string]string{"app": m.of("x", "y", "z")}}},
			Status:     policy.PodDisruptionBudgetStatus{DisruptionsAllowed: int32(m.Intn(3))},
		})
	}
	for _, pod := range one.Pods {
		if m.once(10) {
			going, seconds := meta.NewTime(begin), int64(30)
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &going, &seconds
			if m.once(2) {
				pod.Status.Conditions = []v1.PodCondition{{
					Type: v1.DisruptionTarget, Status: v1.ConditionTrue, Reason: v1.PodReasonPreemptionByScheduler,
				}}
			}
		}
	}
	nominate := func() string { return one.Nodes[m.Intn(len(one.Nodes))].Name }
	for at := range m.Intn(3) {
		pod := m.pod(one, fmt.Sprintf("w%d", at), true)
		pod.Status.NominatedNodeName = nominate()
		one.Pods = append(one.Pods, pod)
	}
	if m.once(5) {
		one.Pod.Status.NominatedNodeName = nominate()
	}
}
