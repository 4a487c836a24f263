// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// This file makes the images: the operator's, the app's, the proxy's and the sandbox's, each of one layer.

package node

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The images that a node holds.
const (
	OperatorImage = "localhost/jobmesh-controller:e2e"
	AppImage      = "localhost/app:e2e"
	ProxyImage    = "localhost/proxyv2:e2e"
	pauseImage    = "localhost/pause:e2e"
)

// image is what goes into one image.
type image struct {
	name string
	// files maps paths in the image to files here; links maps paths to their targets.
	files, links map[string]string
	config       v1.Config
}

// applets are the commands of busybox that the tests call by name.
var applets = []string{"sh", "sleep", "cat", "tail", "touch", "true", "wget"}

// Images writes the images as tar archives into a folder and returns their paths. manager is the operator's binary, of which
// the image is made as the Dockerfile makes it.
func Images(ctx context.Context, root, dir, manager string, b Binaries) ([]string, error) {
	for _, command := range []string{"envoy", "pause"} {
		if err := goBuild(ctx, filepath.Join(root, "test/e2e"), "-ldflags", "-s -w", "-o", filepath.Join(dir, command), "./images/"+command); err != nil {
			return nil, err
		}
	}
	shell := map[string]string{}
	for _, applet := range applets {
		shell["bin/"+applet] = "busybox"
	}
	searched := []string{"PATH=/usr/local/bin:/bin"}
	var archives []string
	for _, i := range []image{{
		name:   OperatorImage,
		files:  map[string]string{"manager": manager},
		config: v1.Config{Entrypoint: []string{"/manager"}, User: "65532:65532"},
	}, {
		name:   AppImage,
		files:  map[string]string{"bin/busybox": busybox()},
		links:  shell,
		config: v1.Config{Entrypoint: []string{"/bin/sh"}, Env: searched},
	}, {
		name: ProxyImage,
		files: map[string]string{
			"usr/local/bin/pilot-agent":                     filepath.Join(b.Istio, "pilot-agent"),
			"usr/local/bin/envoy":                           filepath.Join(dir, "envoy"),
			"var/lib/istio/envoy/envoy_bootstrap_tmpl.json": filepath.Join(b.Istio, filepath.Base(bootstrap)),
			"bin/busybox":                                   busybox(),
		},
		links:  shell,
		config: v1.Config{Entrypoint: []string{"/usr/local/bin/pilot-agent"}, Env: searched},
	}, {
		name:   pauseImage,
		files:  map[string]string{"pause": filepath.Join(dir, "pause")},
		config: v1.Config{Entrypoint: []string{"/pause"}},
	}} {
		archive := filepath.Join(dir, path.Base(i.name)+".tar")
		if err := i.write(archive); err != nil {
			return nil, fmt.Errorf("making the image %s: %w", i.name, err)
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

func (i image) write(archive string) error {
	content, err := i.layer()
	if err != nil {
		return err
	}
	img, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), static.NewLayer(content, types.OCIUncompressedLayer))
	if err != nil {
		return err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture, file.Config = "linux", runtime.GOARCH, i.config
	if img, err = mutate.ConfigFile(img, file); err != nil {
		return err
	}
	tag, err := name.NewTag(i.name)
	if err != nil {
		return err
	}
	return tarball.WriteToFile(archive, tag, img)
}

// layer is the one layer: the image's files, its links, and the folders that hold them.
func (i image) layer() ([]byte, error) {
	var buffer bytes.Buffer
	archive := tar.NewWriter(&buffer)
	made := map[string]bool{}
	folder := func(dir string) error {
		var missing []string
		for ; dir != "." && !made[dir]; dir = path.Dir(dir) {
			made[dir] = true
			missing = append(missing, dir)
		}
		for _, dir := range slices.Backward(missing) {
			if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}); err != nil {
				return err
			}
		}
		return nil
	}
	for _, target := range sortedKeys(i.files) {
		data, err := os.ReadFile(i.files[target])
		if err != nil {
			return nil, err
		}
		if err := folder(path.Dir(target)); err != nil {
			return nil, err
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: target, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := archive.Write(data); err != nil {
			return nil, err
		}
	}
	for _, link := range sortedKeys(i.links) {
		if err := folder(path.Dir(link)); err != nil {
			return nil, err
		}
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: link, Linkname: i.links[link], Mode: 0o777}); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return buffer.Bytes(), err
}
