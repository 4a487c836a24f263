// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the ways into a cluster: credentials, kubeconfig files and the installation of CRDs.

package cluster

import (
	"context"
	"fmt"
	"path/filepath"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// UserConfig returns credentials for any user and groups, by a client certificate. RBAC decides what they may do.
func (c *Cluster) UserConfig(user string, groups ...string) (*rest.Config, error) {
	cert, key, err := c.authority.client(user, groups...)
	if err != nil {
		return nil, err
	}
	config := c.anonymous()
	config.CertData, config.KeyData = cert, key
	return config, nil
}

// ServiceAccountConfig returns credentials of an existing ServiceAccount by a token that the API server issued, valid
// for a day: RBAC sees the user system:serviceaccount:NAMESPACE:NAME, as it does in a Pod.
func (c *Cluster) ServiceAccountConfig(ctx context.Context, namespace, name string) (*rest.Config, error) {
	client, err := kubernetes.NewForConfig(c.config)
	if err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: new(int64(validity.Seconds())),
	}}
	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("requesting a token for the service account %s/%s: %w", namespace, name, err)
	}
	config := c.anonymous()
	config.BearerToken = token.Status.Token
	return config, nil
}

// anonymous returns a Config without credentials, and without the client-side limits that would only slow tests down.
func (c *Cluster) anonymous() *rest.Config {
	return &rest.Config{
		Host:            c.url,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.ca},
		QPS:             clientQPS,
		Burst:           clientBurst,
	}
}

// InstallCRDs applies the CustomResourceDefinitions of a file or folder and waits until the API server serves them.
func (c *Cluster) InstallCRDs(path string) error {
	_, err := envtest.InstallCRDs(c.config, envtest.CRDInstallOptions{Paths: []string{path}, ErrorIfPathMissing: true})
	return err
}

// Kubeconfig writes the address and credentials of config to a file that only its owner can read.
func (c *Cluster) Kubeconfig(path string, config *rest.Config) error {
	const name = "jobmesh"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	return clientcmd.WriteToFile(*file, path)
}

// componentKubeconfig writes the credentials of one of the control plane's own components.
func (c *Cluster) componentKubeconfig(component string) (string, error) {
	config, err := c.UserConfig("system:" + component)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.dir, component+".kubeconfig")
	return path, c.Kubeconfig(path, config)
}
