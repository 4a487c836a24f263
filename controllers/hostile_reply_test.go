// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Replies made to hurt, through a real API server: what they cost the operator in time, in bytes and in memory. A process of its own
// does the asking, so that what it reads and allocates is its own and not the servers'.

package controllers_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/jobmesh/jobmesh/internal/quit"
	"github.com/jobmesh/jobmesh/test/cluster"
	"github.com/jobmesh/jobmesh/test/simnode"
)

// askerVariable, where set, makes the test binary the process that asks.
const askerVariable = "JOBMESH_TEST_ASKER"

const (
	// atOnce is how many attempts run together.
	atOnce = 16
	// maxRead is what one attempt may read off the network, TLS included: 1 MiB, and the buffer of the read that meets the end of it.
	maxRead = 1<<20 + 64<<10
	// maxHeld is what all of them together may take of the operating system's memory at once, over one attempt that went well.
	maxHeld = 24 << 20
)

// asking is what the asker is told, and asked what it tells.
type (
	asking struct {
		Host          string
		Token         string
		CA, Cert, Key []byte
		Target        quit.Target
		Timeout       time.Duration
		Times         int
	}
	asked struct {
		Outcomes  map[quit.Outcome]int
		Protocols map[quit.Protocol]int
		Errors    map[string]int
		Slowest   time.Duration
		// MostRead is the most that one connection read; Held is by how much the process grew; Allocated is the mean per attempt.
		MostRead        int64
		Held, Allocated uint64
	}
)

func init() {
	if os.Getenv(askerVariable) == "" {
		return
	}
	if err := askAlone(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// countedConn counts what is read from one connection.
type countedConn struct {
	net.Conn
	read *atomic.Int64
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(int64(n))
	return n, err
}

// askAlone is the asker's whole life.
func askAlone() error {
	var in asking
	if err := json.NewDecoder(os.Stdin).Decode(&in); err != nil {
		return err
	}
	var mu sync.Mutex
	var conns []*atomic.Int64
	asker, err := quit.NewClient(&rest.Config{
		Host: in.Host, BearerToken: in.Token,
		TLSClientConfig: rest.TLSClientConfig{CAData: in.CA, CertData: in.Cert, KeyData: in.Key},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			read := new(atomic.Int64)
			mu.Lock()
			conns = append(conns, read)
			mu.Unlock()
			return &countedConn{conn, read}, nil
		},
	})
	if err != nil {
		return err
	}
	ask := func() quit.Result {
		ctx, cancel := context.WithTimeout(context.Background(), in.Timeout)
		defer cancel()
		return asker.PortForward(ctx, in.Target)
	}
	ask() // what is made once per process is made here
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)

	out := asked{Outcomes: map[quit.Outcome]int{}, Protocols: map[quit.Protocol]int{}, Errors: map[string]int{}}
	var all sync.WaitGroup
	for range in.Times {
		all.Go(func() {
			result := ask()
			mu.Lock()
			defer mu.Unlock()
			out.Outcomes[result.Outcome]++
			out.Protocols[result.Protocol]++
			if result.Err != nil {
				out.Errors[result.Err.Error()]++
			}
			out.Slowest = max(out.Slowest, result.Duration)
		})
	}
	all.Wait()
	runtime.ReadMemStats(&after)
	out.Held, out.Allocated = after.Sys-before.Sys, (after.TotalAlloc-before.TotalAlloc)/uint64(in.Times)
	for _, read := range conns {
		out.MostRead = max(out.MostRead, read.Load())
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// askInAProcess has a process of its own ask.
func askInAProcess(t *testing.T, config *rest.Config, target quit.Target, timeout time.Duration) asked {
	t.Helper()
	in, err := json.Marshal(asking{
		Host: config.Host, Token: config.BearerToken, CA: config.CAData, Cert: config.CertData, Key: config.KeyData,
		Target: target, Timeout: timeout, Times: atOnce,
	})
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	process := exec.CommandContext(t.Context(), self)
	process.Env = append(os.Environ(), askerVariable+"=1")
	process.Stdin = bytes.NewReader(in)
	var stderr bytes.Buffer
	process.Stderr = &stderr
	text, err := process.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var out asked
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// TestReplyBombs asks proxies that answer with bombs, many times at once, by either protocol.
func TestReplyBombs(t *testing.T) {
	tests := map[string]struct {
		behaviour string
		want      quit.Outcome
	}{
		"endless headers":                 {simnode.BehaviourHugeHeaders, quit.OutcomeRejected},
		"an endless body":                 {simnode.BehaviourHugeBody, quit.OutcomeAccepted},
		"a gzip bomb":                     {simnode.BehaviourGzipBomb, quit.OutcomeAccepted},
		"a body byte by byte":             {simnode.BehaviourSlowDrip, quit.OutcomeAccepted},
		"headers byte by byte":            {simnode.BehaviourSlowHeaders, quit.OutcomeTimeout},
		"no word at all":                  {simnode.BehaviourHang, quit.OutcomeTimeout},
		"garbage":                         {simnode.BehaviourGarbage, quit.OutcomeRejected},
		"1xx for ever":                    {simnode.BehaviourInterim, quit.OutcomeRejected},
		"a redirect to another port":      {simnode.BehaviourRedirect, quit.OutcomeRejected},
		"a redirect to itself":            {simnode.BehaviourRedirectLoop, quit.OutcomeRejected},
		"terminal escapes":                {simnode.BehaviourEscapes, quit.OutcomeRejected},
		"a flood on the error stream":     {simnode.BehaviourErrorFlood, quit.OutcomeError},
		"404 of a server that is no mesh": {simnode.BehaviourNotFound, quit.OutcomeRejected},
	}
	namespace := makeNamespace(t)
	callers := map[string]*rest.Config{
		"WebSocket": account,
		"SPDY":      userWhoMay(t, namespace, "portforward", []string{"create"}), // which is all that a POST needs, and too little for a GET
	}
	for name, tc := range tests {
		template := jobOf(namespace, "template", meshed(), simnode.ProxyScript{Behaviour: tc.behaviour}).Spec.Template
		for protocol, config := range callers {
			t.Run(name+"/"+protocol, func(t *testing.T) {
				t.Parallel()
				g := NewWithT(t)
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "pod-", Annotations: template.Annotations}, Spec: template.Spec}
				create(t, pod)
				g.Eventually(func(g Gomega) {
					var current corev1.Pod
					g.Expect(admin.Get(context.Background(), client.ObjectKeyFromObject(pod), &current)).To(Succeed())
					g.Expect(current.Status.ContainerStatuses).To(ContainElement(SatisfyAll(
						HaveField("Name", "istio-proxy"), HaveField("State.Running", Not(BeNil())))))
				}, soon, 50*time.Millisecond).Should(Succeed())
				timeout := 20 * time.Second
				if tc.want == quit.OutcomeTimeout {
					timeout = 2 * time.Second
				}
				out := askInAProcess(t, config, quit.Target{Namespace: namespace, Pod: pod.Name, Port: 15020}, timeout)
				t.Logf("%d attempts: slowest %s, most read %d bytes, grew by %d KiB, %d KiB allocated per attempt; %v",
					atOnce, out.Slowest.Round(time.Millisecond), out.MostRead, out.Held>>10, out.Allocated>>10, out.Errors)

				g.Expect(out.Outcomes).To(Equal(map[quit.Outcome]int{tc.want: atOnce}), "%v", out.Errors)
				if testCluster.Lacks(cluster.WebSocketPortForward) == "" {
					g.Expect(out.Protocols).To(Equal(map[quit.Protocol]int{quit.Protocol(protocol): atOnce}))
				}
				g.Expect(out.Slowest).To(BeNumerically("<", timeout+2*time.Second))
				g.Expect(out.MostRead).To(BeNumerically("<=", maxRead), "bytes read by one attempt")
				g.Expect(out.Held).To(BeNumerically("<=", maxHeld), "bytes of memory held at once")
				for text := range out.Errors {
					g.Expect(len(text)).To(BeNumerically("<", 300), text)
					for _, r := range text {
						g.Expect(unicode.IsPrint(r)).To(BeTrue(), "%q in %q", r, text)
					}
				}
				if tc.behaviour == simnode.BehaviourRedirectLoop {
					state, _ := fleet.Pod(namespace, pod.Name)
					g.Expect(state.Quits).To(Equal(atOnce+1), "no redirect may be followed")
				}
			})
		}
	}
}
