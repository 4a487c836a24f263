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
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
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
	return m.Run(), nil
}
