package main

import (
	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	resource "k8s.io/api/resource/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Case is a cluster and a pod that wants a node in it. Objects are as the API would show them.
type Case struct {
	Nodes          []*v1.Node                    `json:"nodes"`
	Pods           []*v1.Pod                     `json:"pods"`
	Namespaces     []*v1.Namespace               `json:"namespaces,omitempty"`
	Services       []*v1.Service                 `json:"services,omitempty"`
	Claims         []*v1.PersistentVolumeClaim   `json:"claims,omitempty"`
	Volumes        []*v1.PersistentVolume        `json:"volumes,omitempty"`
	StorageClasses []*storage.StorageClass       `json:"storageClasses,omitempty"`
	CSINodes       []*storage.CSINode            `json:"csiNodes,omitempty"`
	CSIDrivers     []*storage.CSIDriver          `json:"csiDrivers,omitempty"`
	Capacities     []*storage.CSIStorageCapacity `json:"capacities,omitempty"`
	Attachments    []*storage.VolumeAttachment   `json:"attachments,omitempty"`
	Budgets        []*policy.PodDisruptionBudget `json:"budgets,omitempty"`
	DeviceClasses  []*resource.DeviceClass       `json:"deviceClasses,omitempty"`
	Slices         []*resource.ResourceSlice     `json:"slices,omitempty"`
	DeviceClaims   []*resource.ResourceClaim     `json:"deviceClaims,omitempty"`
	TaintRules     []*resource.DeviceTaintRule   `json:"taintRules,omitempty"`
	Pod            *v1.Pod                       `json:"pod"`
}

func (c *Case) objects() []runtime.Object {
	all := []runtime.Object{c.Pod}
	all = add(all, c.Nodes)
	all = add(all, c.Pods)
	all = add(all, c.Namespaces)
	all = add(all, c.Services)
	all = add(all, c.Claims)
	all = add(all, c.Volumes)
	all = add(all, c.StorageClasses)
	all = add(all, c.CSINodes)
	all = add(all, c.CSIDrivers)
	all = add(all, c.Capacities)
	all = add(all, c.Attachments)
	all = add(all, c.Budgets)
	all = add(all, c.DeviceClasses)
	all = add(all, c.Slices)
	all = add(all, c.DeviceClaims)
	all = add(all, c.TaintRules)
	return all
}

func add[T runtime.Object](all []runtime.Object, more []T) []runtime.Object {
	for _, one := range more {
		all = append(all, one)
	}
	return all
}

// Answer is what a scheduler says of a case.
type Answer struct {
	// What stopped the pod before any node was asked.
	Hopeless string `json:"hopeless"`
	// The whole attempt failed; that is nobody's fault.
	Error string `json:"error"`
	// The same for what was found out about nodes: which of them is named is chance.
	Failed  map[string]string           `json:"failed"`
	Message string                      `json:"message"`
	Refused map[string]Refusal          `json:"refused"`
	Scores  map[string]map[string]int64 `json:"scores"`
	// Devices that claims would get on each node that fits: claim, request and device.
	Devices map[string][]string `json:"devices"`
	// Pods that would have to go, by node, if none fits.
	Victims map[string]Victims `json:"victims"`
	// Where room would be made: any of them.
	Best []string `json:"best"`
}

type Refusal struct {
	Reasons    []string `json:"reasons"`
	Resolvable bool     `json:"resolvable"`
}

type Victims struct {
	Pods       []string `json:"pods"`
	Violations int64    `json:"violations"`
}
