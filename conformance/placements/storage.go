package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func ptr[T any](value T) *T { return &value }

func (m maker) size() resource.Quantity {
	return *resource.NewQuantity(int64(1+m.Intn(20))<<30, resource.BinarySI)
}

func (m maker) modes() []v1.PersistentVolumeAccessMode {
	all := []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany, v1.ReadWriteOncePod}
	return []v1.PersistentVolumeAccessMode{all[m.Intn(len(all))]}
}

// storage: classes, drivers with their limits and capacities, volumes and claims, some of them bound.
func (m maker) storage(one *Case) {
	wait, now := storage.VolumeBindingWaitForFirstConsumer, storage.VolumeBindingImmediate
	class := func(name, provisioner string, mode *storage.VolumeBindingMode) *storage.StorageClass {
		return &storage.StorageClass{ObjectMeta: meta.ObjectMeta{Name: name}, Provisioner: provisioner, VolumeBindingMode: mode}
	}
	zonal := class("zonal", "csi.a", &wait)
	zonal.AllowedTopologies = []v1.TopologySelectorTerm{{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{
		{Key: "topology.kubernetes.io/zone", Values: []string{m.of("a", "b"), m.of("b", "c")}},
	}}}
	one.StorageClasses = []*storage.StorageClass{
		class("wait", "csi.a", &wait), class("other", "csi.b", &wait), zonal,
		class("local", "kubernetes.io/no-provisioner", &wait), class("now", "csi.a", &now),
	}
	for _, name := range []string{"csi.a", "csi.b"} {
		if m.once(4) {
			continue
		}
		one.CSIDrivers = append(one.CSIDrivers, &storage.CSIDriver{
			ObjectMeta: meta.ObjectMeta{Name: name},
			Spec:       storage.CSIDriverSpec{StorageCapacity: ptr(m.once(2)), AttachRequired: ptr(true)},
		})
	}
	// No two for the same class and zone: which of them is taken is chance, and scores go by it.
	places := map[[2]string]bool{}
	for at := range m.Intn(8) {
		class, zone := m.of("wait", "other", "zonal"), m.of("a", "b", "c")
		if places[[2]string{class, zone}] {
			continue
		}
		places[[2]string{class, zone}] = true
		capacity := &storage.CSIStorageCapacity{
			ObjectMeta:       meta.ObjectMeta{Name: fmt.Sprintf("cap%d", at), Namespace: "default"},
			StorageClassName: class, Capacity: ptr(m.size()),
			NodeTopology: &meta.LabelSelector{MatchLabels: map[string]string{"topology.kubernetes.io/zone": zone}},
		}
		if m.once(3) {
			capacity.MaximumVolumeSize = ptr(m.size())
		}
		one.Capacities = append(one.Capacities, capacity)
	}
	for _, node := range one.Nodes {
		if m.once(4) {
			continue
		}
		csi := &storage.CSINode{ObjectMeta: meta.ObjectMeta{Name: node.Name}}
		for _, driver := range []string{"csi.a", "csi.b"} {
			if m.once(3) {
				continue
			}
			own := storage.CSINodeDriver{Name: driver, NodeID: node.Name}
			if !m.once(3) {
				own.Allocatable = &storage.VolumeNodeResources{Count: ptr(int32(m.Intn(4)))}
			}
			csi.Spec.Drivers = append(csi.Spec.Drivers, own)
		}
		one.CSINodes = append(one.CSINodes, csi)
	}
	for at := range m.Intn(10) {
		one.Volumes = append(one.Volumes, m.volume(one, fmt.Sprintf("v%d", at)))
	}
	for at := range 1 + m.Intn(8) {
		m.claim(one, fmt.Sprintf("c%d", at))
	}
	for at := range m.Intn(4) {
		attachment := &storage.VolumeAttachment{ObjectMeta: meta.ObjectMeta{Name: fmt.Sprintf("a%d", at)}}
		attachment.Spec.Attacher = m.of("csi.a", "csi.b")
		attachment.Spec.NodeName = one.Nodes[m.Intn(len(one.Nodes))].Name
		attachment.Spec.Source.PersistentVolumeName = ptr(fmt.Sprintf("v%d", m.Intn(10)))
		one.Attachments = append(one.Attachments, attachment)
	}
}

func (m maker) volume(one *Case, name string) *v1.PersistentVolume {
	volume := &v1.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, UID: types.UID(name + "-uid"), Labels: map[string]string{"tier": m.of("gold", "tin")}},
		Spec: v1.PersistentVolumeSpec{
			Capacity: v1.ResourceList{v1.ResourceStorage: m.size()}, AccessModes: m.modes(),
			StorageClassName: m.of("wait", "local", "local", "other", "zonal", ""), VolumeMode: ptr(v1.PersistentVolumeFilesystem),
			PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
		},
		Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable},
	}
	if m.once(2) {
		volume.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: m.of("csi.a", "csi.b"), VolumeHandle: m.of(name, name, "shared")}
	} else {
		volume.Spec.HostPath = &v1.HostPathVolumeSource{Path: "/d"}
	}
	expression := v1.NodeSelectorRequirement{Operator: v1.NodeSelectorOpIn}
	switch m.Intn(4) {
	case 0:
		expression.Key, expression.Values = "kubernetes.io/hostname", []string{one.Nodes[m.Intn(len(one.Nodes))].Name}
	case 1:
		expression.Key, expression.Values = "topology.kubernetes.io/zone", []string{m.of("a", "b", "c")}
	case 2:
		volume.Labels["topology.kubernetes.io/zone"] = m.of("a", "b", "c", "a__b")
	}
	if expression.Key != "" {
		volume.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{
			NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{expression}}},
		}}
	}
	return volume
}

func (m maker) claim(one *Case, name string) {
	claim := &v1.PersistentVolumeClaim{
		ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid"), Annotations: map[string]string{}},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: m.modes(), VolumeMode: ptr(v1.PersistentVolumeFilesystem),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: m.size()}},
		},
		Status: v1.PersistentVolumeClaimStatus{Phase: v1.ClaimPending},
	}
	if class := m.of("wait", "wait", "local", "local", "other", "zonal", "zonal", "none", "now", "gone"); class != "none" {
		claim.Spec.StorageClassName = &class
	}
	one.Claims = append(one.Claims, claim)
	if m.once(5) {
		claim.Spec.Selector = &meta.LabelSelector{MatchLabels: map[string]string{"tier": m.of("gold", "tin")}}
	}
	if m.once(8) {
		claim.Annotations["volume.kubernetes.io/selected-node"] = one.Nodes[m.Intn(len(one.Nodes))].Name
	}
	if m.once(25) {
		claim.Status.Phase = v1.ClaimLost
		claim.Spec.VolumeName = "gone"
	}
	if m.once(25) {
		claim.DeletionTimestamp, claim.Finalizers = ptr(meta.NewTime(begin)), []string{"kubernetes.io/pvc-protection"}
	}
	switch {
	case len(one.Volumes) > 0 && m.once(2):
		volume := one.Volumes[m.Intn(len(one.Volumes))]
		if volume.Spec.ClaimRef != nil {
			return
		}
		volume.Spec.ClaimRef = &v1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "default", Name: name}
		if m.once(4) {
			return
		}
		volume.Spec.ClaimRef.UID = claim.UID
		claim.Spec.VolumeName, claim.Spec.StorageClassName = volume.Name, ptr(volume.Spec.StorageClassName)
		if m.once(6) {
			return
		}
		volume.Status.Phase, claim.Status.Phase = v1.VolumeBound, v1.ClaimBound
		claim.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	case m.once(15):
		claim.Spec.VolumeName = "missing"
		claim.Annotations["pv.kubernetes.io/bind-completed"] = "yes"
	}
}

// volumesOf gives a pod some of the cluster's claims, and disks of its own.
func (m maker) volumesOf(one *Case, pod *v1.Pod) {
	if len(one.Claims) == 0 {
		return
	}
	add := func(source v1.VolumeSource) {
		name := fmt.Sprintf("vol%d", len(pod.Spec.Volumes))
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	}
	for _, at := range m.some(m.Intn(3), len(one.Claims)) {
		name := one.Claims[at].Name
		if m.once(40) {
			name = "nobody"
		}
		add(v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
	}
	if m.once(8) {
		switch m.Intn(4) {
		case 0:
			add(v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: m.of("d", "e"), ReadOnly: m.once(2)}})
		case 1:
			add(v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: m.of("d", "e")}})
		case 2:
			add(v1.VolumeSource{ISCSI: &v1.ISCSIVolumeSource{TargetPortal: "t", IQN: m.of("d", "e"), ReadOnly: m.once(2)}})
		default:
			add(v1.VolumeSource{RBD: &v1.RBDVolumeSource{CephMonitors: []string{m.of("m", "n"), "o"}, RBDPool: m.of("p", "q"), RBDImage: "i", ReadOnly: m.once(2)}})
		}
	}
	if m.once(15) {
		add(v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}})
		if !m.once(4) {
			m.claim(one, fmt.Sprintf("%s-vol%d", pod.Name, len(pod.Spec.Volumes)-1))
			claim := one.Claims[len(one.Claims)-1]
			if !m.once(5) {
				claim.OwnerReferences = []meta.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: ptr(true)}}
			}
		}
	}
}
