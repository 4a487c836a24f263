// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file finds out where the time of a Job went, from the API server's audit log, which tells when each status was written, and
// containerd's log, which tells when each process ended.

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/jobmesh/jobmesh/test/e2e/node"
)

// auditEvent is what is read of a line of the audit log.
type auditEvent struct {
	StageTimestamp time.Time
	ObjectRef      struct{ Resource, Namespace, Name, Subresource string }
	RequestObject  json.RawMessage
	ResponseStatus struct{ Code int }
}

// written is when the ends of pods' apps, of pods and of Jobs were first written.
type written struct {
	appEnded, podFinished, jobComplete map[types.NamespacedName]time.Time
}

// readTimelines does nothing where the cluster is one that keeps no such logs here.
func (b *bench) readTimelines() error {
	logs := os.Getenv("ARTIFACTS")
	writes, err := readAudit(filepath.Join(logs, node.AuditLog))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	exits, err := readExits(filepath.Join(logs, "containerd.log"))
	if err != nil {
		return err
	}
	for _, k := range kinds {
		for key, pod := range b.alone {
			if key.Namespace != b.namespaces[k.key] {
				continue
			}
			job := types.NamespacedName{Namespace: key.Namespace, Name: pod.job}
			app, told, finished, complete := exits[pod.app], writes.appEnded[key], writes.podFinished[key], writes.jobComplete[job]
			if app.IsZero() || told.IsZero() || finished.IsZero() || complete.IsZero() {
				continue
			}
			// Where the proxy was first, or there is none, nobody waits for it.
			gone := told
			if proxy := exits[pod.proxy]; proxy.After(told) {
				gone = proxy
			}
			t := timeline{Kind: k.key, Told: told.Sub(app).Seconds(), ProxyExit: gone.Sub(told).Seconds(),
				Finished: finished.Sub(gone).Seconds(), Job: complete.Sub(finished).Seconds()}
			if i := slices.IndexFunc(b.Attempts, func(a attempt) bool { return a.Namespace == key.Namespace && a.Pod == key.Name }); i >= 0 {
				a := b.Attempts[i]
				began := a.At.Add(-time.Duration((a.Duration + a.Decision) * float64(time.Second)))
				t.Delivery, t.Quit = max(0, began.Sub(told).Seconds()), max(0, gone.Sub(a.At).Seconds())
			}
			b.Timelines = append(b.Timelines, t)
		}
	}
	return nil
}

func readAudit(file string) (written, error) {
	w := written{map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Time{}, map[types.NamespacedName]time.Time{}}
	err := eachLine(file, func(line []byte) {
		var e auditEvent
		if json.Unmarshal(line, &e) != nil || e.ObjectRef.Subresource != "status" || e.ResponseStatus.Code != 200 {
			return
		}
		key := types.NamespacedName{Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name}
		first := func(times map[types.NamespacedName]time.Time) {
			if _, ok := times[key]; !ok {
				times[key] = e.StageTimestamp
			}
		}
		switch e.ObjectRef.Resource {
		case "pods":
			var pod corev1.Pod
			if json.Unmarshal(e.RequestObject, &pod) != nil {
				return
			}
			if pod.Status.Phase == corev1.PodSucceeded {
				first(w.podFinished)
			}
			for _, c := range pod.Status.ContainerStatuses {
				if c.Name == "app" && c.State.Terminated != nil {
					first(w.appEnded)
				}
			}
		case "jobs":
			var job batchv1.Job
			if json.Unmarshal(e.RequestObject, &job) != nil {
				return
			}
			for _, c := range job.Status.Conditions {
				if c.Type == batchv1.JobComplete && c.Status == corev1.ConditionTrue {
					first(w.jobComplete)
				}
			}
		}
	})
	return w, err
}

// exitEvent is the end of a container's first process, or of one that was started in it later, which has another ID.
var exitEvent = regexp.MustCompile(`received container exit event container_id:\\?"([0-9a-f]+)\\?" +id:\\?"([0-9a-f]+)\\?".* exited_at:\{seconds:(\d+)(?: +nanos:(\d+))?`)

// readExits returns when each container's process ended.
func readExits(file string) (map[string]time.Time, error) {
	exits := map[string]time.Time{}
	err := eachLine(file, func(line []byte) {
		if m := exitEvent.FindSubmatch(line); m != nil && string(m[1]) == string(m[2]) {
			sec, _ := strconv.ParseInt(string(m[3]), 10, 64)
			nanos, _ := strconv.ParseInt(string(m[4]), 10, 64)
			exits[string(m[1])] = time.Unix(sec, nanos)
		}
	})
	return exits, err
}

func eachLine(file string, do func([]byte)) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		do(lines.Bytes())
	}
	return lines.Err()
}
