// Placements asks upstream's scheduler what it says of pods in clusters, so that ours can be asked the same:
//
//	placements make FAMILY SEED COUNT > cases.jsonl   random clusters, each with a pod that wants a node
//	placements ask cases.jsonl > theirs.jsonl         every plugin's verdicts and scores, and whose going would help
//	placements compare cases.jsonl ours.jsonl theirs.jsonl
//
// FAMILY is nodes, volumes, devices, preemption or mixed. Ours are told by the example `placements` of the scheduler's
// crate. Each case runs upstream's own wiring (scheduler.New) over a fake API; nothing is bound.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"
)

func main() {
	flags := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(flags)
	must(flags.Set("logtostderr", "false"))
	must(flags.Set("stderrthreshold", "FATAL"))
	must(flags.Set("alsologtostderr", "false"))
	klog.SetOutput(discard{})
	if len(os.Args) < 3 {
		fail("say what to do: make, ask or compare; the head of main.go has the words")
	}
	switch os.Args[1] {
	case "make":
		seed, err := strconv.ParseInt(os.Args[3], 10, 64)
		must(err)
		count, err := strconv.Atoi(os.Args[4])
		must(err)
		out := json.NewEncoder(os.Stdout)
		for at := 0; at < count; at++ {
			maker := maker{rand.New(rand.NewSource(seed + int64(at)))}
			must(out.Encode(maker.cluster(os.Args[2])))
		}
	case "ask":
		askAll(os.Args[2])
	case "compare":
		compare(os.Args[2], os.Args[3], os.Args[4])
	default:
		fail("there is make, ask and compare, and no " + os.Args[1])
	}
}

// askAll asks several cases at a time: most of a case is waiting for informers.
func askAll(path string) {
	var cases []*Case
	eachLine(path, func(line []byte) {
		one := &Case{}
		must(json.Unmarshal(line, one))
		cases = append(cases, one)
	})
	answers := make([]*Answer, len(cases))
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for at := int(next.Add(1)) - 1; at < len(cases); at = int(next.Add(1)) - 1 {
				answers[at] = ask(cases[at])
			}
		})
	}
	workers.Wait()
	out := json.NewEncoder(os.Stdout)
	out.SetEscapeHTML(false)
	for _, answer := range answers {
		must(out.Encode(answer))
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

func eachLine(path string, see func([]byte)) {
	file, err := os.Open(path)
	must(err)
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		see(lines.Bytes())
	}
	must(lines.Err())
}

func must(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}
