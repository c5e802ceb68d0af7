package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
	"strings"
)

// compare counts what both say alike and shows what they do not.
func compare(casesPath, oursPath, theirsPath string) {
	read := func(path string) []Answer {
		var all []Answer
		eachLine(path, func(line []byte) {
			var one Answer
			must(json.Unmarshal(line, &one))
			all = append(all, one)
		})
		return all
	}
	ours, theirs := read(oursPath), read(theirsPath)
	if len(ours) != len(theirs) {
		fail(fmt.Sprintf("ours are %d answers, theirs %d", len(ours), len(theirs)))
	}
	counts, differing := map[string]int{}, 0
	for at := range ours {
		ours, theirs := &ours[at], &theirs[at]
		counts["nodes refused"] += len(theirs.Refused)
		for _, scores := range theirs.Scores {
			counts["scores"] += len(scores)
		}
		counts["nodes with devices"] += len(theirs.Devices)
		counts["nodes with victims"] += len(theirs.Victims)
		if theirs.Hopeless != "" {
			counts["pods stopped before any node"]++
		}
		if theirs.Error != "" || len(theirs.Failed) > 0 {
			counts["attempts that fail"]++
		}
		var said []string
		differ := func(what string, ours, theirs any) {
			if !reflect.DeepEqual(ours, theirs) {
				a, _ := json.Marshal(ours)
				b, _ := json.Marshal(theirs)
				said = append(said, fmt.Sprintf("  %s\n    ours   %s\n    theirs %s", what, a, b))
			}
		}
		differ("stopped", ours.Hopeless, theirs.Hopeless)
		differ("error", ours.Error, theirs.Error)
		for _, name := range names(ours.Failed, theirs.Failed) {
			differ("failed "+name, ours.Failed[name], theirs.Failed[name])
		}
		for _, name := range names(ours.Refused, theirs.Refused) {
			differ("refused "+name, ours.Refused[name], theirs.Refused[name])
		}
		for _, name := range names(ours.Scores, theirs.Scores) {
			// A plugin that has nothing to say may be left out or give nothing to all.
			a, b := ours.Scores[name], theirs.Scores[name]
			if !(zero(a) && zero(b)) {
				differ("scores "+name, a, b)
			}
		}
		for _, name := range names(ours.Devices, theirs.Devices) {
			differ("devices "+name, sorted(ours.Devices[name]), sorted(theirs.Devices[name]))
		}
		for _, name := range names(ours.Victims, theirs.Victims) {
			differ("victims "+name, ours.Victims[name], theirs.Victims[name])
		}
		for _, best := range theirs.Best {
			if !slices.Contains(ours.Best, best) {
				differ("best", ours.Best, theirs.Best)
			}
		}
		if len(theirs.Victims) == 0 {
			differ("message", inOrder(ours.Message), inOrder(theirs.Message))
		}
		if len(said) > 0 {
			differing++
			if differing <= 20 || os.Getenv("ALL") != "" {
				fmt.Printf("case %d\n", at)
				for _, line := range said {
					fmt.Println(line)
				}
			}
		}
	}
	fmt.Printf("%d cases, %d differ\n", len(ours), differing)
	for _, name := range names(counts, nil) {
		fmt.Printf("%8d %s\n", counts[name], name)
	}
}

// Devices in an order of their own.
func sorted(devices []string) []string {
	all := append([]string{}, devices...)
	slices.Sort(all)
	return all
}

// Several errors of an attempt to make room come in the order in which nodes were looked at, which is chance.
func inOrder(message string) string {
	before, rest, has := strings.Cut(message, "preemption: [")
	errors, ends := strings.CutSuffix(rest, "]")
	if !has || !ends {
		return message
	}
	const begin = `running "`
	all := strings.Split(errors, ", "+begin)
	for at := range all {
		all[at] = strings.TrimPrefix(all[at], begin)
	}
	slices.Sort(all)
	return before + "preemption: [" + begin + strings.Join(all, ", "+begin) + "]"
}

func zero(scores map[string]int64) bool {
	for _, score := range scores {
		if score != 0 {
			return false
		}
	}
	return true
}

func names[T any](a, b map[string]T) []string {
	var all []string
	for name := range a {
		all = append(all, name)
	}
	for name := range b {
		if _, both := a[name]; !both {
			all = append(all, name)
		}
	}
	sort.Strings(all)
	return all
}
