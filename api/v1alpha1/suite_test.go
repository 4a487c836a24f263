// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// One real API server with the CRD installed, for every test of the package: only it knows what the schema means.

package v1alpha1_test

import (
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
)

var (
	// api talks to the server and refuses unknown fields, as kubectl does.
	api client.Client
	// raw fetches what a typed client hides: tables and OpenAPI documents.
	raw *http.Client
	// host is the server's URL, without a slash at its end.
	host string
	// minor is the server's minor version of 1.
	minor int
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "api/v1alpha1:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	assets := cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), os.Getenv("JOBMESH_ASSETS"))
	if assets == "" {
		return 0, fmt.Errorf("these tests need a folder with kube-apiserver and etcd: run `make test`, " +
			"or set KUBEBUILDER_ASSETS to what `make controlplane` prints")
	}
	env := &envtest.Environment{
		BinaryAssetsDirectory: assets,
		CRDDirectoryPaths:     []string{filepath.Join("..", "..", "config", "crd", "bases")},
		ErrorIfCRDPathMissing: true,
	}
	config, err := env.Start()
	if err != nil {
		return 0, fmt.Errorf("start the API server of %s: %w", assets, err)
	}
	defer func() {
		if stopErr := env.Stop(); stopErr != nil && err == nil {
			err = fmt.Errorf("stop the API server: %w", stopErr)
		}
	}()

	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return 0, err
	}
	lax, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return 0, err
	}
	api = client.WithFieldValidation(lax, "Strict")
	host = strings.TrimSuffix(config.Host, "/")
	if raw, err = rest.HTTPClientFor(config); err != nil {
		return 0, err
	}
	server, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return 0, err
	}
	info, err := server.ServerVersion()
	if err != nil {
		return 0, err
	}
	if minor, err = strconv.Atoi(info.Minor); err != nil {
		return 0, fmt.Errorf("the API server's version: %w", err)
	}
	return m.Run(), nil
}

// wordedAsTested is the first minor version whose errors are worded as the tests quote them.
const wordedAsTested = 37

var quotedValue = regexp.MustCompile(`(Invalid|Duplicate) value: .*`)

// expectError checks that err says all that is wanted. Older servers name the type where newer ones quote the value, print it as Go
// does, or name a field of the status without "status.": of them, field and message are wanted.
func expectError(t *testing.T, err error, wants ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("want an error with %q, but it was accepted", wants)
	}
	for _, want := range wants {
		if minor < wordedAsTested {
			want = quotedValue.ReplaceAllString(strings.TrimPrefix(want, "status."), "$1 value: ")
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("want %q in the error, got: %v", want, err)
		}
	}
}
