package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// services: whoever is selected by one is spread by default. Nodes get images and more taints.
func (m maker) services(one *Case) {
	one.Namespaces = append(one.Namespaces, &v1.Namespace{ObjectMeta: meta.ObjectMeta{
		Name: "other", Labels: map[string]string{"team": "a"},
	}})
	if m.once(2) {
		one.Services = append(one.Services, &v1.Service{
			TypeMeta:   meta.TypeMeta{APIVersion: "v1", Kind: "Service"},
			ObjectMeta: meta.ObjectMeta{Name: "s", Namespace: "default"},
			Spec: v1.ServiceSpec{
				Selector: map[string]string{"app": m.of("x", "y")}, Ports: []v1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(80)}},
			},
		})
	}
	sizes := map[string]int64{"i:1": m.Int63n(900) << 20, "i:2": m.Int63n(900) << 20, "j:latest": m.Int63n(900) << 20}
	for _, node := range one.Nodes {
		if m.once(3) {
			// An image has one size, wherever it is.
			name := m.of("i:1", "i:2", "j:latest")
			node.Status.Images = append(node.Status.Images, v1.ContainerImage{Names: []string{name}, SizeBytes: sizes[name]})
		}
		if m.once(4) {
			node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: m.of("p", "q"), Value: "v", Effect: v1.TaintEffectPreferNoSchedule})
		}
		if m.once(10) {
			node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: m.of("p", "q"), Value: "v", Effect: v1.TaintEffectNoExecute})
		}
		node.Labels["rank"] = fmt.Sprint(m.Intn(5))
	}
}

// choose gives a pod wishes about nodes and about other pods.
func (m maker) choose(one *Case, pod *v1.Pod) {
	container := &pod.Spec.Containers[0]
	container.Image = m.of("i:1", "i:2", "j", "k")
	if m.once(5) {
		pod.Namespace = "other"
	}
	if m.once(4) {
		port := int32(80 + m.Intn(2))
		container.Ports = []v1.ContainerPort{{ContainerPort: port, HostPort: port, Protocol: v1.Protocol(m.of("TCP", "TCP", "UDP")), HostIP: m.of("", "", "127.0.0.1")}}
	}
	if m.once(6) {
		pod.Spec.NodeSelector = map[string]string{"disk": m.of("ssd", "hdd")}
	}
	if m.once(4) {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, v1.Toleration{
			Key: m.of("p", "q", ""), Operator: v1.TolerationOpExists, Effect: v1.TaintEffect(m.of("", "NoExecute", "PreferNoSchedule")),
		})
	}
	affinity := &v1.Affinity{}
	if m.once(3) {
		affinity.NodeAffinity = m.nodeAffinity(one)
	}
	if m.once(4) {
		affinity.PodAffinity = &v1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: m.weighted()}
		if m.once(3) {
			affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{m.term()}
		}
	}
	if m.once(4) {
		affinity.PodAntiAffinity = &v1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: m.weighted()}
		if m.once(3) {
			affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = []v1.PodAffinityTerm{m.term()}
		}
	}
	pod.Spec.Affinity = affinity
	for range m.Intn(3) {
		if m.once(2) {
			pod.Spec.TopologySpreadConstraints = append(pod.Spec.TopologySpreadConstraints, m.constraint(pod))
		}
	}
}

func (m maker) requirement(one *Case) v1.NodeSelectorRequirement {
	switch m.Intn(5) {
	case 0:
		return v1.NodeSelectorRequirement{Key: "rank", Operator: v1.NodeSelectorOperator(m.of("Gt", "Lt")), Values: []string{"2"}}
	case 1:
		return v1.NodeSelectorRequirement{Key: "disk", Operator: v1.NodeSelectorOperator(m.of("Exists", "DoesNotExist"))}
	default:
		return v1.NodeSelectorRequirement{
			Key: "topology.kubernetes.io/zone", Operator: v1.NodeSelectorOperator(m.of("In", "NotIn")), Values: []string{m.of("a", "b"), m.of("b", "c")},
		}
	}
}

func (m maker) nodeAffinity(one *Case) *v1.NodeAffinity {
	affinity := &v1.NodeAffinity{}
	for range m.Intn(3) {
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution, v1.PreferredSchedulingTerm{
			Weight:     int32(1 + m.Intn(100)),
			Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{m.requirement(one)}},
		})
	}
	if !m.once(2) {
		return affinity
	}
	required := &v1.NodeSelector{}
	for range 1 + m.Intn(2) {
		term := v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{m.requirement(one)}}
		if m.once(4) {
			term.MatchFields = []v1.NodeSelectorRequirement{{
				Key: "metadata.name", Operator: v1.NodeSelectorOperator(m.of("In", "NotIn")), Values: []string{one.Nodes[m.Intn(len(one.Nodes))].Name},
			}}
		}
		required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
	}
	affinity.RequiredDuringSchedulingIgnoredDuringExecution = required
	return affinity
}

func (m maker) term() v1.PodAffinityTerm {
	term := v1.PodAffinityTerm{
		LabelSelector: &meta.LabelSelector{MatchLabels: map[string]string{"app": m.of("x", "y", "z")}},
		TopologyKey:   m.of("kubernetes.io/hostname", "topology.kubernetes.io/zone"),
	}
	switch m.Intn(4) {
	case 0:
		term.Namespaces = []string{m.of("default", "other")}
	case 1:
		term.NamespaceSelector = &meta.LabelSelector{MatchLabels: map[string]string{"team": m.of("a", "b")}}
	}
	return term
}

func (m maker) weighted() []v1.WeightedPodAffinityTerm {
	var all []v1.WeightedPodAffinityTerm
	for range 1 + m.Intn(2) {
		all = append(all, v1.WeightedPodAffinityTerm{Weight: int32(1 + m.Intn(100)), PodAffinityTerm: m.term()})
	}
	return all
}

func (m maker) constraint(pod *v1.Pod) v1.TopologySpreadConstraint {
	constraint := v1.TopologySpreadConstraint{
		MaxSkew: int32(1 + m.Intn(2)), TopologyKey: m.of("kubernetes.io/hostname", "topology.kubernetes.io/zone"),
		WhenUnsatisfiable: v1.UnsatisfiableConstraintAction(m.of("DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway")),
		LabelSelector:     &meta.LabelSelector{MatchLabels: map[string]string{"app": m.of("x", "y", "z")}},
	}
	if constraint.WhenUnsatisfiable == v1.DoNotSchedule && m.once(4) {
		constraint.MinDomains = ptr(int32(1 + m.Intn(3)))
	}
	if m.once(4) {
		constraint.NodeAffinityPolicy = ptr(v1.NodeInclusionPolicy(m.of("Honor", "Ignore")))
	}
	if m.once(4) {
		constraint.NodeTaintsPolicy = ptr(v1.NodeInclusionPolicy(m.of("Honor", "Ignore")))
	}
	return constraint
}
