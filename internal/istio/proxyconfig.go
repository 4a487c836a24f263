// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What JobMesh reads of Istio's ProxyConfig, which a pod carries in an annotation and the proxy in a variable.

package istio

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	proxyConfigAnnotation = "proxy.istio.io/config"
	proxyConfigEnv        = "PROXY_CONFIG"
)

// maxProxyConfigBytes bounds what is parsed of a tenant's YAML, which takes the time of everyone's decisions. Istio's own default
// configuration is below 1 KiB.
const maxProxyConfigBytes = 16 << 10

// defaultDrain is Istio's terminationDrainDuration; maxDrain bounds what a tenant may make JobMesh wait between two requests.
const (
	defaultDrain = 5 * time.Second
	maxDrain     = 10 * time.Minute
)

// proxyConfig is the part of a ProxyConfig that matters here. Istio reads it as protobuf JSON, which knows both spellings of a
// field and takes a number in quotes.
type proxyConfig struct {
	StatusPort      json.RawMessage `json:"statusPort"`
	StatusPortSnake json.RawMessage `json:"status_port"`
	Drain           json.RawMessage `json:"terminationDrainDuration"`
	DrainSnake      json.RawMessage `json:"termination_drain_duration"`
}

// parseProxyConfig reads YAML or JSON. What cannot be read counts as empty, as a source that says nothing.
func parseProxyConfig(text string) proxyConfig {
	var config proxyConfig
	if text == "" || len(text) > maxProxyConfigBytes {
		return proxyConfig{}
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return proxyConfig{}
	}
	return config
}

// statusPort is the configured port, or 0 where there is none that is a port.
func (c proxyConfig) statusPort() int32 {
	number, err := strconv.ParseFloat(cmp.Or(unquoted(c.StatusPort), unquoted(c.StatusPortSnake)), 64)
	if err != nil || number < 1 || number > 65535 || number != float64(int32(number)) {
		return 0
	}
	return int32(number)
}

// drain is the configured terminationDrainDuration, or 0 where there is none.
func (c proxyConfig) drain() time.Duration {
	d, err := time.ParseDuration(cmp.Or(unquoted(c.Drain), unquoted(c.DrainSnake)))
	if err != nil || d < 0 {
		return 0
	}
	return min(d, maxDrain)
}

func unquoted(value json.RawMessage) string { return strings.Trim(string(value), `"`) }
