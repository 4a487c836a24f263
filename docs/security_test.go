// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// What security.md claims to be shown by a test, is: each test that it names exists, in the file that it names.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testLink = regexp.MustCompile("\\[`((?:Test|Fuzz)[A-Za-z0-9_]+)`\\]\\(([^)]+)\\)")
	testName = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z][A-Za-z0-9_]+`)
	anyLink  = regexp.MustCompile(`\]\(([^)#]+)\)`)
	fuzzFunc = regexp.MustCompile(`(?m)^func (Fuzz[A-Za-z0-9_]+)\(`)
)

func TestSecurityNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, link := range testLink.FindAllStringSubmatch(string(text), -1) {
		name, file := link[1], link[2]
		linked[name] = true
		source, err := os.ReadFile(file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !strings.Contains(string(source), "\nfunc "+name+"(") {
			t.Errorf("%s is not in %s", name, file)
		}
	}
	if len(linked) < 30 {
		t.Errorf("only %d tests are named", len(linked))
	}
	for _, name := range testName.FindAllString(string(text), -1) {
		if !linked[name] {
			t.Errorf("%s is named without a link to its file", name)
		}
	}
	for _, link := range anyLink.FindAllStringSubmatch(string(text), -1) {
		if _, err := os.Stat(link[1]); err != nil && !strings.Contains(link[1], "://") {
			t.Errorf("a link leads nowhere: %v", err)
		}
	}
}

// TestSecurityNamesEveryFuzzTarget keeps the table of fuzz targets whole.
func TestSecurityNamesEveryFuzzTarget(t *testing.T) {
	text, err := os.ReadFile("security.md")
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for _, root := range []string{"../internal", "../cmd", "../controllers", "../api"} {
		err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			source, err := os.ReadFile(path)
			for _, f := range fuzzFunc.FindAllStringSubmatch(string(source), -1) {
				targets = append(targets, f[1])
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(targets) < 6 {
		t.Errorf("only %d fuzz targets: %v", len(targets), targets)
	}
	for _, name := range targets {
		if !strings.Contains(string(text), "[`"+name+"`]") {
			t.Errorf("%s is not in security.md", name)
		}
	}
}
