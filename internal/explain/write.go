// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// How an explanation is written: text for a person, JSON and YAML for a script.

package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/internal/istio"
	"github.com/jobmesh/jobmesh/internal/sanitize"
)

// Line says the verdict in one line, such as `default/seed-x7k2p: Quit (Stuck): Every app container has finished for good, and
// istio-proxy still runs.` It is safe for a terminal.
func (e *Explanation) Line() string {
	return fmt.Sprintf("%s/%s: %s (%s): %s",
		sanitize.Text(e.Pod.Namespace), sanitize.Text(e.Pod.Name), e.Verdict, e.Reason, sanitize.Text(e.Message))
}

// WriteText writes the explanations for a person, with an empty line between them.
func WriteText(w io.Writer, explanations []Explanation) error {
	for i := range explanations {
		if i > 0 {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		if err := explanations[i].writeText(w); err != nil {
			return err
		}
	}
	return nil
}

func (e *Explanation) writeText(w io.Writer) error {
	if _, err := fmt.Fprintf(w, "%s\n\n", e.Line()); err != nil {
		return err
	}
	facts := printers.GetNewTabWriter(w)
	for _, fact := range e.facts() {
		fmt.Fprintf(facts, "%s:\t%s\n", fact.name, sanitize.Text(fact.value))
	}
	if err := facts.Flush(); err != nil {
		return err
	}
	if len(e.Containers) > 0 {
		table := printers.GetNewTabWriter(w)
		fmt.Fprint(table, "\nNAME\tROLE\tSTATE\tFINAL\tWHY\n")
		for _, c := range e.Containers {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", sanitize.Text(c.Name), c.Role, c.State, yesNo(c.Final), sanitize.Text(c.Why))
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for i, note := range e.Notes {
		if i == 0 {
			fmt.Fprintln(w)
		}
		if _, err := fmt.Fprintf(w, "Note: %s\n", sanitize.Text(note)); err != nil {
			return err
		}
	}
	return nil
}

type fact struct{ name, value string }

// facts are the lines above the table; what does not apply to the pod is left out.
func (e *Explanation) facts() []fact {
	governed := e.Policy.Name != ""
	facts := []fact{{"Policy", "none governs the pod"}, {"Mode", string(e.Policy.Mode) + " (the default mode)"}}
	if governed {
		facts[0].value, facts[1].value = e.Policy.Name, string(e.Policy.Mode)
	}
	add := func(applies bool, name, value string) {
		if applies {
			facts = append(facts, fact{name, value})
		}
	}
	add(e.Policy.GracePeriodSeconds > 0, "Grace period", fmt.Sprintf("%d s", e.Policy.GracePeriodSeconds))
	add(len(e.Policy.IgnoredContainers) > 0, "Ignored containers", strings.Join(e.Policy.IgnoredContainers, ", "))
	add(e.Policy.ExecFallback, "Exec fallback", "allowed")
	add(e.Job.Name != "", "Job", e.Job.Name)
	add(e.Job.Deadline != "", "Job deadline", e.Job.Deadline)
	add(e.Proxy.Injection == istio.InjectionNone, "Proxy", "none")
	add(e.Proxy.Injection != istio.InjectionNone, "Proxy", fmt.Sprintf("%s (%s)", e.Proxy.Container, e.Proxy.Injection))
	add(e.Proxy.Injection != istio.InjectionNone && e.Proxy.StatusPort != 0, "Status port", fmt.Sprintf("%d (%s)", e.Proxy.StatusPort, e.Proxy.StatusPortSource))
	add(e.Proxy.Injection != istio.InjectionNone && e.Proxy.StatusPort == 0, "Status port", fmt.Sprintf("disabled (%s)", e.Proxy.StatusPortSource))
	add(e.AppFinishedAt != "", "App finished", e.AppFinishedAt)
	add(e.RecheckAfterSeconds > 0, "Look again in", fmt.Sprintf("%d s", e.RecheckAfterSeconds))
	return facts
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// list is the form of several explanations, after that of Kubernetes' lists.
type list struct {
	Items []Explanation `json:"items"`
}

// WriteJSON writes one explanation as an object; several, or none, as a list: {"items": […]}.
func WriteJSON(w io.Writer, explanations []Explanation) error {
	text, err := marshal(explanations)
	if err != nil {
		return err
	}
	_, err = w.Write(append(sanitize.JSON(text), '\n'))
	return err
}

// WriteYAML writes what WriteJSON writes, as YAML.
func WriteYAML(w io.Writer, explanations []Explanation) error {
	text, err := marshal(explanations)
	if err != nil {
		return err
	}
	// The escapes are for YAML's reader, which accepts no control characters; its writer may undo them.
	if text, err = yaml.JSONToYAML(sanitize.JSONForYAML(text)); err != nil {
		return err
	}
	_, err = io.WriteString(w, sanitize.Lines(string(text)))
	return err
}

func marshal(explanations []Explanation) ([]byte, error) {
	var value any = list{append([]Explanation{}, explanations...)}
	if len(explanations) == 1 {
		value = explanations[0]
	}
	return json.MarshalIndent(value, "", "  ")
}
