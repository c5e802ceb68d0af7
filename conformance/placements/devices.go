package main

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	dra "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const driver = "gpu.example.com"

// devices: pools of nodes and of all, classes, and claims, some of which have devices.
func (m maker) devices(one *Case) {
	class := func(name string, expressions ...string) *dra.DeviceClass {
		class := &dra.DeviceClass{ObjectMeta: meta.ObjectMeta{Name: name, CreationTimestamp: meta.NewTime(begin)}}
		for _, expression := range expressions {
			class.Spec.Selectors = append(class.Spec.Selectors, selector(expression))
		}
		return class
	}
	extended := class("extended", `device.driver == "gpu.example.com"`)
	extended.Spec.ExtendedResourceName = ptr("example.com/gpu")
	one.DeviceClasses = []*dra.DeviceClass{
		class("gpu", `device.driver == "gpu.example.com"`), extended,
		class("big", `device.capacity["gpu.example.com"].memory.compareTo(quantity("20Gi")) >= 0`),
		class("any"),
	}
	for _, node := range one.Nodes {
		if !m.once(4) {
			slice := m.slice(node.Name, m.Intn(5))
			slice.Spec.NodeName = ptr(node.Name)
			one.Slices = append(one.Slices, slice)
		}
	}
	if m.once(2) {
		slice := m.slice("shared", 1+m.Intn(4))
		slice.Spec.AllNodes = ptr(true)
		one.Slices = append(one.Slices, slice)
	}
	if m.once(2) {
		slice := m.slice("zone", 1+m.Intn(4))
		slice.Spec.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: "topology.kubernetes.io/zone", Operator: v1.NodeSelectorOpIn, Values: []string{m.of("a", "b")}},
		}}}}
		one.Slices = append(one.Slices, slice)
	}
	if len(one.Slices) > 0 && m.once(10) {
		// A pool of which a slice is not there yet.
		one.Slices[m.Intn(len(one.Slices))].Spec.Pool.ResourceSliceCount = 2
	}
	if m.once(4) {
		one.TaintRules = append(one.TaintRules, &dra.DeviceTaintRule{
			ObjectMeta: meta.ObjectMeta{Name: "rule"},
			Spec: dra.DeviceTaintRuleSpec{
				DeviceSelector: &dra.DeviceTaintSelector{Driver: ptr(driver), Device: ptr("d1")},
				Taint:          dra.DeviceTaint{Key: "rule", Effect: dra.DeviceTaintEffectNoSchedule, TimeAdded: ptr(meta.NewTime(begin))},
			},
		})
	}
	for at := range 1 + m.Intn(5) {
		one.DeviceClaims = append(one.DeviceClaims, m.deviceClaim(one, fmt.Sprintf("dc%d", at)))
	}
}

func selector(expression string) dra.DeviceSelector {
	return dra.DeviceSelector{CEL: &dra.CELDeviceSelector{Expression: expression}}
}

func (m maker) slice(name string, count int) *dra.ResourceSlice {
	slice := &dra.ResourceSlice{
		ObjectMeta: meta.ObjectMeta{Name: "slice-" + name, UID: types.UID("slice-" + name)},
		Spec:       dra.ResourceSliceSpec{Driver: driver, Pool: dra.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1}},
	}
	for at := range count {
		device := dra.Device{
			Name: fmt.Sprintf("d%d", at),
			Attributes: map[dra.QualifiedName]dra.DeviceAttribute{
				"model": {StringValue: ptr(m.of("m1", "m2"))},
				"numa":  {IntValue: ptr(int64(m.Intn(2)))},
				"fast":  {BoolValue: ptr(m.once(2))},
				"v":     {VersionValue: ptr(m.of("1.0.0", "2.1.0"))},
			},
			Capacity: map[dra.QualifiedName]dra.DeviceCapacity{
				"memory": {Value: *resource.NewQuantity(int64(10*(1+m.Intn(4)))<<30, resource.BinarySI)},
			},
		}
		if m.once(6) {
			device.Taints = []dra.DeviceTaint{{Key: "t", Value: "v", Effect: dra.DeviceTaintEffectNoSchedule, TimeAdded: ptr(meta.NewTime(begin))}}
		}
		if m.once(4) {
			device.AllowMultipleAllocations = ptr(true)
			memory := device.Capacity["memory"]
			if m.once(2) {
				low, step := resource.MustParse("2Gi"), resource.MustParse("2Gi")
				memory.RequestPolicy = &dra.CapacityRequestPolicy{Default: &low, ValidRange: &dra.CapacityRequestPolicyRange{Min: &low, Step: &step}}
			}
			device.Capacity["memory"] = memory
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return slice
}

func (m maker) expression() string {
	return m.of(
		`device.attributes["gpu.example.com"].model == "m1"`,
		`device.attributes["gpu.example.com"].numa == 0`,
		`device.attributes["gpu.example.com"].fast`,
		`device.attributes["gpu.example.com"].v.isGreaterThan(semver("1.5.0"))`,
		`device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("15Gi"))`,
		`"missing" in device.attributes["gpu.example.com"]`,
		`device.attributes["other.example.com"].model == "m1"`,
	)
}

func (m maker) request(name string) dra.DeviceRequest {
	class := m.of("gpu", "gpu", "gpu", "big", "any")
	if m.once(40) {
		class = "gone"
	}
	count := int64(1 + m.Intn(2))
	var selectors []dra.DeviceSelector
	if m.once(2) {
		selectors = append(selectors, selector(m.expression()))
	}
	var tolerations []dra.DeviceToleration
	if m.once(4) {
		tolerations = append(tolerations, dra.DeviceToleration{Key: m.of("t", "rule"), Operator: dra.DeviceTolerationOpExists})
	}
	var capacity *dra.CapacityRequirements
	if m.once(4) {
		capacity = &dra.CapacityRequirements{Requests: map[dra.QualifiedName]resource.Quantity{"memory": resource.MustParse(m.of("1Gi", "5Gi", "12Gi"))}}
	}
	if m.once(4) {
		request := dra.DeviceRequest{Name: name}
		for at := range 1 + m.Intn(3) {
			request.FirstAvailable = append(request.FirstAvailable, dra.DeviceSubRequest{
				Name: fmt.Sprintf("s%d", at), DeviceClassName: m.of("gpu", "big"), AllocationMode: dra.DeviceAllocationModeExactCount,
				Count: int64(1 + m.Intn(3)), Selectors: []dra.DeviceSelector{selector(m.expression())},
			})
		}
		return request
	}
	exactly := &dra.ExactDeviceRequest{
		DeviceClassName: class, AllocationMode: dra.DeviceAllocationModeExactCount, Count: count,
		Selectors: selectors, Tolerations: tolerations, Capacity: capacity,
	}
	if m.once(6) {
		exactly.AllocationMode, exactly.Count = dra.DeviceAllocationModeAll, 0
	}
	if m.once(12) {
		exactly.AdminAccess = ptr(true)
	}
	return dra.DeviceRequest{Name: name, Exactly: exactly}
}

func (m maker) deviceClaim(one *Case, name string) *dra.ResourceClaim {
	claim := &dra.ResourceClaim{ObjectMeta: meta.ObjectMeta{Name: name, Namespace: "default", UID: types.UID(name + "-uid")}}
	for at := range 1 + m.Intn(2) {
		claim.Spec.Devices.Requests = append(claim.Spec.Devices.Requests, m.request(fmt.Sprintf("r%d", at)))
	}
	if m.once(3) {
		attribute := dra.FullyQualifiedName(driver + "/" + m.of("model", "numa", "fast"))
		constraint := dra.DeviceConstraint{MatchAttribute: &attribute}
		if m.once(3) {
			constraint = dra.DeviceConstraint{DistinctAttribute: &attribute}
		}
		claim.Spec.Devices.Constraints = append(claim.Spec.Devices.Constraints, constraint)
	}
	if m.once(3) && len(one.Slices) > 0 {
		slice := one.Slices[m.Intn(len(one.Slices))]
		if len(slice.Spec.Devices) == 0 {
			return claim
		}
		device := slice.Spec.Devices[m.Intn(len(slice.Spec.Devices))]
		result := dra.DeviceRequestAllocationResult{Request: "r0", Driver: driver, Pool: slice.Spec.Pool.Name, Device: device.Name}
		if device.AllowMultipleAllocations != nil {
			result.ShareID = ptr(types.UID("00000000-0000-0000-0000-00000000000" + name[2:]))
			result.ConsumedCapacity = map[dra.QualifiedName]resource.Quantity{"memory": resource.MustParse("4Gi")}
		}
		claim.Status.Allocation = &dra.AllocationResult{Devices: dra.DeviceAllocationResult{Results: []dra.DeviceRequestAllocationResult{result}}}
		if slice.Spec.NodeName != nil {
			claim.Status.Allocation.NodeSelector = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: v1.NodeSelectorOpIn, Values: []string{*slice.Spec.NodeName}},
			}}}}
		}
		if !m.once(3) {
			claim.Status.ReservedFor = []dra.ResourceClaimConsumerReference{{Resource: "pods", Name: "other", UID: "other-uid"}}
		}
	}
	return claim
}

// devicesOf gives a pod claims, and resources that devices stand for.
func (m maker) devicesOf(one *Case, pod *v1.Pod) {
	if len(one.DeviceClaims) == 0 || pod.Name != "wanted" {
		return
	}
	for at, claim := range m.some(m.Intn(3), len(one.DeviceClaims)) {
		name := one.DeviceClaims[claim].Name
		pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, v1.PodResourceClaim{Name: fmt.Sprintf("d%d", at), ResourceClaimName: &name})
	}
	if m.once(5) {
		pod.Spec.Containers[0].Resources.Requests["example.com/gpu"] = *resource.NewQuantity(int64(1+m.Intn(2)), resource.DecimalSI)
	}
}
