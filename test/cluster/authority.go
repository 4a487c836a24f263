// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file holds the certificate authority of one cluster and the certificates it signs.

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity bounds every certificate: a test cluster lives for minutes.
const validity = 24 * time.Hour

// authority signs for one cluster. Its files lie in the cluster's folder.
type authority struct {
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	ca   []byte // PEM
}

func (a *authority) path(file string) string { return filepath.Join(a.dir, file) }

// newAuthority writes the files that the API server starts from: its own certificate, which names loopback and the given
// addresses, the authority's, and the key that signs service account tokens.
func newAuthority(dir string, addresses ...net.IP) (*authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	template := newTemplate(pkix.Name{CommonName: "jobmesh-test"})
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority's certificate: %w", err)
	}
	a := &authority{dir: dir, key: key, ca: pemBlock("CERTIFICATE", der)}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}

	server := newTemplate(pkix.Name{CommonName: "kube-apiserver"})
	server.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	server.DNSNames = []string{"localhost", "kubernetes.default.svc"}
	server.IPAddresses = append([]net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, addresses...)
	serverCert, serverKey, err := a.sign(server)
	if err != nil {
		return nil, err
	}
	tokenKey, err := newKey()
	if err != nil {
		return nil, err
	}
	tokenPEM, err := keyPEM(tokenKey)
	if err != nil {
		return nil, err
	}
	for file, content := range map[string][]byte{
		"ca.crt": a.ca, "apiserver.crt": serverCert, "apiserver.key": serverKey, "serviceaccount.key": tokenPEM,
	} {
		if err := os.WriteFile(a.path(file), content, 0o600); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// client signs a certificate for a user, as the API server reads it: the common name is the user, the organisations
// are the groups.
func (a *authority) client(user string, groups ...string) (cert, key []byte, err error) {
	template := newTemplate(pkix.Name{CommonName: user, Organization: groups})
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.sign(template)
}

func (a *authority) sign(template *x509.Certificate) (cert, key []byte, err error) {
	signer, err := newKey()
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, signer.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("signing the certificate of %q: %w", template.Subject.CommonName, err)
	}
	key, err = keyPEM(signer)
	return pemBlock("CERTIFICATE", der), key, err
}

func newTemplate(name pkix.Name) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62)) // fails only where crypto/rand crashes the program anyway
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      name,
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// keyPEM writes SEC 1, not PKCS 8, which the API server does not take for a key that signs tokens.
func keyPEM(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	return pemBlock("EC PRIVATE KEY", der), err
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
