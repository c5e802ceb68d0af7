package main

import (
	"context"
	"os"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	configv1 "k8s.io/kube-scheduler/config/v1"
)

// How long after informers have synced their handlers may still be at work: some have no way to be asked.
var patience = func() time.Duration {
	milliseconds, err := strconv.Atoi(os.Getenv("PATIENCE"))
	if err != nil {
		milliseconds = 4
	}
	return time.Duration(milliseconds) * time.Millisecond
}()

// ask runs one case through upstream's scheduler.
func ask(one *Case) *Answer {
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	defer cancel()
	client := fake.NewClientset(one.objects()...)
	factory := informers.NewSharedInformerFactory(client, 0)
	snapshot := internalcache.NewEmptySnapshot()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	sched, err := scheduler.New(ctx, client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithNodeInfoSnapshot(snapshot))
	must(err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	must(sched.WaitForHandlersSync(ctx))
	time.Sleep(patience)
	logger := klog.FromContext(ctx)
	must(sched.Cache.UpdateSnapshot(logger, snapshot))
	return judge(ctx, sched, snapshot, one)
}

func judge(ctx context.Context, sched *scheduler.Scheduler, snapshot *internalcache.Snapshot, one *Case) *Answer {
	answer := &Answer{
		Failed:  map[string]string{},
		Refused: map[string]Refusal{},
		Scores:  map[string]map[string]int64{},
		Devices: map[string][]string{},
		Victims: map[string]Victims{},
	}
	profile := sched.Profiles["default-scheduler"]
	state := framework.NewCycleState()
	pre, status, plugins := profile.RunPreFilterPlugins(ctx, state, one.Pod)
	statuses := framework.NewDefaultNodeToStatus()
	diagnosis := framework.Diagnosis{NodeToStatus: statuses, UnschedulablePlugins: plugins}
	infos, err := snapshot.NodeInfos().List()
	must(err)
	var fitting []fwk.NodeInfo
	if !status.IsSuccess() {
		if !status.IsRejected() {
			answer.Error = status.AsError().Error()
			return answer
		}
		answer.Hopeless = status.Message()
		diagnosis.PreFilterMsg = status.Message()
		statuses.SetAbsentNodesStatus(status)
	} else {
		if !pre.AllNodes() {
			text := "node(s) didn't satisfy plugin(s) " + bracketed(plugins.UnsortedList())
			statuses.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, text))
		}
		for _, info := range infos {
			name := info.Node().Name
			if !pre.AllNodes() && !pre.NodeNames.Has(name) {
				continue
			}
			status := profile.RunFilterPluginsWithNominatedPods(ctx, state, one.Pod, info)
			switch {
			case status.IsSuccess():
				fitting = append(fitting, info)
			case status.IsRejected():
				statuses.Set(name, status)
				resolvable := status.Code() == fwk.Unschedulable
				answer.Refused[name] = Refusal{Reasons: status.Reasons(), Resolvable: resolvable}
			default:
				answer.Failed[name] = status.AsError().Error()
			}
		}
	}
	if len(answer.Failed) > 0 {
		return answer
	}
	if len(fitting) > 0 {
		score(ctx, profile, state, one.Pod, fitting, answer)
		return answer
	}
	fit := &framework.FitError{Pod: one.Pod, NumAllNodes: len(infos), Diagnosis: diagnosis}
	// A state of its own: plugins note in theirs what they are asked, and do something about it afterwards.
	own := framework.NewCycleState()
	profile.RunPreFilterPlugins(ctx, own, one.Pod)
	preempt(ctx, profile, own, one.Pod, statuses, answer)
	if len(answer.Victims) == 0 {
		_, status := profile.RunPostFilterPlugins(ctx, state, one.Pod, statuses)
		fit.Diagnosis.PostFilterMsg = status.Message()
	}
	answer.Message = fit.Error()
	return answer
}

func bracketed(names []string) string {
	slices.Sort(names)
	text := "["
	for at, name := range names {
		if at > 0 {
			text += " "
		}
		text += name
	}
	return text + "]"
}

func score(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *v1.Pod, fitting []fwk.NodeInfo, answer *Answer) {
	if status := profile.RunPreScorePlugins(ctx, state, pod, fitting); !status.IsSuccess() {
		answer.Error = status.AsError().Error()
		return
	}
	all, status := profile.RunScorePlugins(ctx, state, pod, fitting)
	if !status.IsSuccess() {
		answer.Error = status.AsError().Error()
		return
	}
	for _, node := range all {
		for _, score := range node.Scores {
			if answer.Scores[score.Name] == nil {
				answer.Scores[score.Name] = map[string]int64{}
			}
			answer.Scores[score.Name][node.Name] = score.Score
		}
	}
	for _, info := range fitting {
		if taken := reserve(ctx, profile, state.Clone(), pod, info.Node().Name); len(taken) > 0 {
			answer.Devices[info.Node().Name] = taken
		}
	}
}

// reserve says which devices the pod's claims would get on a node. What its own claims get is asked for by
// claim; the claim for extended resources has no name yet: what is taken then, was not before, and is none
// of the others' is its own.
func reserve(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *v1.Pod, node string) []string {
	claims := profile.SharedDRAManager().ResourceClaims()
	before, err := claims.GatherAllocatedState()
	must(err)
	if status := profile.RunReservePluginsReserve(ctx, state, pod, node); !status.IsSuccess() {
		return []string{"error: " + status.AsError().Error()}
	}
	defer profile.RunReservePluginsUnreserve(ctx, state, pod, node)
	var taken []string
	own := map[string]bool{}
	for _, wanted := range pod.Spec.ResourceClaims {
		claim, err := claims.Get(pod.Namespace, *wanted.ResourceClaimName)
		must(err)
		allocation := claims.GetPendingAllocation(claim.UID)
		if allocation == nil {
			continue
		}
		for _, result := range allocation.Devices.Results {
			device := result.Driver + "/" + result.Pool + "/" + result.Device
			if result.ShareID != nil {
				own[device+"/"+string(*result.ShareID)] = true
			}
			own[device] = true
			taken = append(taken, claim.Name+" "+result.Request+" "+device)
		}
	}
	after, err := claims.GatherAllocatedState()
	must(err)
	for id := range after.AllocatedDevices.Difference(before.AllocatedDevices) {
		if !own[id.String()] {
			taken = append(taken, "extended "+id.String())
		}
	}
	for id := range after.AllocatedSharedDeviceIDs.Difference(before.AllocatedSharedDeviceIDs) {
		if !own[id.String()] {
			taken = append(taken, "extended shared "+id.Driver.String()+"/"+id.Pool.String()+"/"+id.Device.String())
		}
	}
	return taken
}

// preempt asks who would have to go on every node where that helps, and on which it would be done.
func preempt(ctx context.Context, profile framework.Framework, state fwk.CycleState, pod *v1.Pod, statuses *framework.NodeToStatus, answer *Answer) {
	var defaults configv1.DefaultPreemptionArgs
	scheme.Scheme.Default(&defaults)
	var args config.DefaultPreemptionArgs
	must(scheme.Scheme.Convert(&defaults, &args, nil))
	gates := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	plugin, err := defaultpreemption.New(ctx, &args, profile, gates)
	must(err)
	if may, _ := plugin.PodEligibleToPreemptOthers(ctx, pod, statuses.Get(pod.Status.NominatedNodeName)); !may {
		return
	}
	potential, err := statuses.NodesForStatusCode(profile.SnapshotSharedLister().NodeInfos(), fwk.Unschedulable)
	must(err)
	if len(potential) == 0 {
		return
	}
	budgets, err := plugin.Evaluator.PdbLister.List(labels.Everything())
	must(err)
	candidates, _, err := plugin.Evaluator.DryRunPreemption(ctx, state, pod, potential, budgets, 0, int32(len(potential))+1)
	if err != nil && len(candidates) == 0 {
		// The attempt to make room fails as a whole; what it says is part of the message.
		return
	}
	for _, candidate := range candidates {
		victims := Victims{Violations: candidate.Victims().NumPDBViolations, Pods: []string{}}
		for _, pod := range candidate.Victims().Pods {
			victims.Pods = append(victims.Pods, pod.Name)
		}
		answer.Victims[candidate.Name()] = victims
	}
	if best := plugin.Evaluator.SelectCandidate(ctx, candidates); best != nil {
		answer.Best = []string{best.Name()}
	}
}
