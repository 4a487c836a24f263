// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the cluster that this package's tests share, and their helpers.

package simnode_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/jobmesh/jobmesh/test/cluster"
	"github.com/jobmesh/jobmesh/test/simnode"
)

var (
	config *rest.Config
	client *kubernetes.Clientset
	fleet  *simnode.Fleet
	// noWebSocket says why the API server carries no port-forward by WebSocket, where it does not.
	noWebSocket string
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // the streaming library logs each failed port-forward, and here most are meant to fail
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// run starts a cluster and a fleet for all tests, and checks that the fleet leaves no goroutine behind.
func run(m *testing.M) (code int, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{})
	if err != nil {
		return 1, err
	}
	defer func() { _ = c.Stop() }()
	config, noWebSocket = c.Config(), c.Lacks(cluster.WebSocketPortForward)
	if client, err = kubernetes.NewForConfig(config); err != nil {
		return 1, err
	}
	// What the cluster and the client keep running is not the fleet's.
	before := goleak.IgnoreCurrent()
	if fleet, err = simnode.Start(ctx, config, simnode.Options{Nodes: 2}); err != nil {
		return 1, err
	}
	code = m.Run()
	fleet.Stop()
	if code == 0 {
		err = findLeak(before)
	}
	return code, err
}

// findLeak gives the goroutines of the fleet time to end: the SPDY library holds one for a second or more after a connection
// that did not close cleanly, and goleak itself waits no longer than that.
func findLeak(before goleak.Option) (err error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		err = goleak.Find(before, goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
			goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
			goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*clientConnReadLoop).run"))
		if err == nil {
			return nil
		}
	}
	return err
}

// newNamespace returns a namespace in which Pods can be created.
func newNamespace(t *testing.T) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service account", func() (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(ns.Name).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil, err
	})
	return ns.Name
}

// eventually waits for what done reports.
func eventually(t *testing.T, what string, done func() (bool, error)) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		var ok bool
		if ok, err = done(); ok {
			return
		}
	}
	t.Fatalf("waited in vain for %s: %v", what, err)
}

func app() corev1.Container { return corev1.Container{Name: "app", Image: "app"} }

func proxy() corev1.Container {
	return corev1.Container{Name: "istio-proxy", Image: "proxyv2", Args: []string{"proxy", "sidecar"}}
}

func template(policy corev1.RestartPolicy, containers ...corev1.Container) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{RestartPolicy: policy, Containers: containers}}
}

func createJob(t *testing.T, namespace string, template corev1.PodTemplateSpec) *batchv1.Job {
	t.Helper()
	job, err := client.BatchV1().Jobs(namespace).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "job-"},
		Spec:       batchv1.JobSpec{Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func waitPod(t *testing.T, job *batchv1.Job, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	return waitPodNamed(t, job.Namespace, job.Name, what, holds)
}

// waitPodNamed waits until one of a Job's Pods holds.
func waitPodNamed(t *testing.T, namespace, job, what string, holds func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	eventually(t, "a Pod "+what, func() (bool, error) {
		pods, err := client.CoreV1().Pods(namespace).List(t.Context(),
			metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
		if err != nil {
			return false, err
		}
		for i := range pods.Items {
			if holds(&pods.Items[i]) {
				found = &pods.Items[i]
				return true, nil
			}
			err = fmt.Errorf("have: %+v", pods.Items[i].Status)
		}
		return false, err
	})
	return found
}

// stuck holds where the app has finished for good and the proxy runs.
func stuck(p *corev1.Pod) bool {
	s := statuses(p)
	return s["app"].State.Terminated != nil && s["istio-proxy"].State.Running != nil
}

func statuses(p *corev1.Pod) map[string]corev1.ContainerStatus {
	all := map[string]corev1.ContainerStatus{}
	for _, s := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		all[s.Name] = s
	}
	return all
}

func waitJob(t *testing.T, job *batchv1.Job, want batchv1.JobConditionType) {
	t.Helper()
	eventually(t, "the Job to be "+string(want), func() (bool, error) {
		j, err := client.BatchV1().Jobs(job.Namespace).Get(t.Context(), job.Name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range j.Status.Conditions {
			if c.Type == want && c.Status == corev1.ConditionTrue {
				return true, nil
			}
		}
		return false, fmt.Errorf("have: %+v", j.Status)
	})
}

// answer is what a request through port-forward came to.
type answer struct {
	status int
	body   string
	err    error  // of the request
	stream string // what the error stream said
}

// ask sends one request through port-forward.
func ask(t *testing.T, namespace, pod, method string, port int, webSocket bool) answer {
	t.Helper()
	url := client.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod).SubResource("portforward").URL()
	var dialer httpstream.Dialer
	transport, upgrader, err := spdy.RoundTripperFor(config)
	if err != nil {
		t.Fatal(err)
	}
	dialer = spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url)
	if webSocket {
		if dialer, err = portforward.NewSPDYOverWebsocketDialerForStreaming(url, config); err != nil {
			t.Fatal(err)
		}
	}
	conn, _, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = conn.Close() }()
	headers := http.Header{}
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "1")
	errors, err := conn.CreateStream(headers)
	if err != nil {
		t.Fatal(err)
	}
	_ = errors.Close()
	said := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(io.LimitReader(errors, 4096))
		said <- string(text)
	}()
	time.AfterFunc(5*time.Second, func() { _ = conn.Close() })
	var a answer
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err := conn.CreateStream(headers)
	if err != nil { // reset before it was seen to be open, which is an end like another: the other stream says why
		a.err = io.EOF
	} else {
		_, _ = fmt.Fprintf(data, "%s /quitquitquit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", method)
		response, err := http.ReadResponse(bufio.NewReader(io.LimitReader(data, 16384)), nil)
		if a.err = err; err == nil {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 4096))
			_ = response.Body.Close()
			a.status, a.body = response.StatusCode, string(bytes.TrimSpace(body))
		}
		_ = data.Close()
	}
	select {
	case a.stream = <-said:
	case <-time.After(2 * time.Second):
	}
	return a
}

// askDirectly sends the request from 127.0.0.1, not through the node.
func askDirectly(t *testing.T, method, ip string, port int) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method,
		"http://"+net.JoinHostPort(ip, strconv.Itoa(port))+"/quitquitquit", strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}
	http := http.Client{Transport: &http.Transport{DialContext: dialer.DialContext, DisableKeepAlives: true}}
	response, err := http.Do(request)
	if err != nil {
		return answer{err: err}
	}
	defer func() { _ = response.Body.Close() }()
	body, _ := io.ReadAll(response.Body)
	return answer{status: response.StatusCode, body: string(bytes.TrimSpace(body))}
}
