// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

package sanitize

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"
)

func TestText(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":              {"seed-x7k2p", "seed-x7k2p"},
		"other scripts":      {"größe 漢字 é", "größe 漢字 é"},
		"escape sequence":    {"\x1b[31mred", `\x1b[31mred`},
		"one-byte CSI":       {"\u009b2J", `\u009b2J`},
		"line breaks, tabs":  {"a\r\nb\tc", `a\r\nb\tc`},
		"line separator":     {"a\u2028b", `a\u2028b`},
		"bidi override":      {"a\u202eb", `a\u202eb`},
		"zero width":         {"a\u200bb", `a\u200bb`},
		"no-break space":     {"a\u00a0b", `a\u00a0b`},
		"tag character":      {"\U000e0041", `\U000e0041`},
		"no UTF-8":           {"a\xff\xc3", `a\xff\xc3`},
		"replacement itself": {"\ufffd", "\ufffd"},
		"DEL and NUL":        {"\x7f\x00", `\x7f\x00`},
		"just fits":          {strings.Repeat("ä", MaxRunes), strings.Repeat("ä", MaxRunes)},
		"too long":           {strings.Repeat("ä", MaxRunes+1), strings.Repeat("ä", MaxRunes) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Text(tc.in); got != tc.want {
				t.Errorf("Text(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestLines(t *testing.T) {
	if got, want := Lines("a: \u202e\nb: \x1b\r\n"), "a: \\u202e\nb: \\x1b\\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("plain")
	f.Add("\x1b\u009b\u202e\U000e0041\u2028\x7f \\ \" é")
	f.Fuzz(func(t *testing.T, s string) {
		text, err := json.MarshalIndent(map[string]string{s: s}, "", "  ")
		if err != nil {
			t.Fatal(err) // a map of strings always marshals
		}
		safe := JSON(text)
		for _, r := range string(safe) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("JSON(%q) holds %q", text, r)
			}
		}
		var want, got map[string]string
		if err := json.Unmarshal(text, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(safe, &got); err != nil {
			t.Fatalf("JSON(%q) = %q: %v", text, safe, err)
		}
		for key, value := range want {
			if got[key] != value {
				t.Errorf("JSON(%q) reads as %q", text, got)
			}
		}

		forYAML := JSONForYAML(text)
		for _, r := range string(forYAML) {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("JSONForYAML(%q) holds %q", text, r)
			}
		}
		// Of a key without a question mark YAML takes 1024 characters. Those that are written with it are names of fields and labels. Key and
		// value are alike here.
		if len(forYAML) > 2*1024 {
			return
		}
		var fromYAML map[string]string
		if err := yaml.Unmarshal(forYAML, &fromYAML); err != nil {
			t.Fatalf("JSONForYAML(%q) = %q: %v", text, forYAML, err)
		}
		for key, value := range want {
			if fromYAML[key] != value {
				t.Errorf("JSONForYAML(%q) reads as %q", text, fromYAML)
			}
		}
	})
}
