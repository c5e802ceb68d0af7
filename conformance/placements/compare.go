package main

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"sort"
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
		if theirs.Error != "" {
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
		differ("error", ours.Error != "", theirs.Error != "")
		if theirs.Error == "" && ours.Error == "" {
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
				differ("devices "+name, ours.Devices[name], theirs.Devices[name])
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
				differ("message", ours.Message, theirs.Message)
			}
		} else {
			differ("error's text", ours.Error, theirs.Error)
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
