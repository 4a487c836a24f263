// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Short forms: what Inspect reads of a tenant's texts, in a few bytes. A cache keeps these instead of texts that are long, so
// that nobody fills the operator's memory with comments in an annotation.

package istio

import (
	"encoding/json"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

const (
	// shortText is the longest text that is left as it is: what Istio itself writes is shorter.
	shortText = 1 << 10
	// shortPort is the same for a port, and shortWords for the words of a command line.
	shortPort  = 16
	shortWords = 64
)

// ShortAnnotation returns an annotation of ReadAnnotations in its short form.
func ShortAnnotation(key, value string) string {
	switch {
	case key == statusPortAnnotation && len(value) > shortPort:
		return strconv.Itoa(int(annotatedPort(value)))
	case key == proxyConfigAnnotation && len(value) > shortText:
		return shortConfig(value)
	}
	return value
}

// ShortVariables returns the variables of ReadVariables that the container sets, each once and in its short form.
func ShortVariables(c *corev1.Container) []corev1.EnvVar {
	var kept []corev1.EnvVar
	for _, name := range ReadVariables {
		value := envValue(c, name)
		if len(value) > shortText {
			value = shortConfig(value) // of which DISABLE_ENVOY can only be empty: no truth is that long
		}
		if value != "" {
			kept = append(kept, corev1.EnvVar{Name: name, Value: value})
		}
	}
	return kept
}

// ShortCommand returns a command and arguments that give the proxy the same role.
func ShortCommand(c *corev1.Container) (command, args []string) {
	total := 0
	for _, words := range [][]string{c.Command, c.Args} {
		for _, word := range words {
			total += len(word)
		}
	}
	if total <= 4*shortText && len(c.Command)+len(c.Args) <= shortWords {
		return c.Command, c.Args
	}
	if role(c) == routerRole {
		return nil, []string{"proxy", routerRole}
	}
	return nil, nil
}

func shortConfig(text string) string {
	config := parseProxyConfig(text)
	short := map[string]any{}
	if port := config.statusPort(); port != 0 {
		short["statusPort"] = port
	}
	if drain := config.drain(); drain != 0 {
		short["terminationDrainDuration"] = drain.String()
	}
	if len(short) == 0 {
		return ""
	}
	encoded, err := json.Marshal(short)
	if err != nil {
		return ""
	}
	return string(encoded)
}
