// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Whatever the text, what is written of it is printable, bounded, and tells different texts apart.

package sanitize

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func FuzzText(f *testing.F) {
	for _, seed := range []string{
		"", "seed-x7k2p", "größe 漢字", "\x1b[31m\x1b]0;title\x07", "a\r\nb\tc", "\u202e\u2066\u200b\ufeff", "\u009b2J", "\xff\xfe\xc3", "\x00\x7f",
		"\U000e0041\u2028", "\ufffd", "e\u0301\u0301\u0301", strings.Repeat("\x1b", 2000), strings.Repeat("漢", MaxRunes), "\xf4\x90\x80\x80", "\xed\xa0\x80",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text, lines := Text(s), Lines(s)
		for _, r := range text {
			if !unicode.IsPrint(r) {
				t.Errorf("Text(%q) holds %q", s, r)
			}
		}
		for _, r := range lines {
			if r != '\n' && !unicode.IsPrint(r) {
				t.Errorf("Lines(%q) holds %q", s, r)
			}
		}
		if !utf8.ValidString(text) || !utf8.ValidString(lines) {
			t.Errorf("%q and %q are not both UTF-8", text, lines)
		}
		// No rune takes more than ten characters: \U and eight digits.
		if n := utf8.RuneCountInString(text); n > 10*MaxRunes+1 {
			t.Errorf("Text of %d runes has %d", utf8.RuneCountInString(s), n)
		}
		if strings.Count(lines, "\n") != strings.Count(s, "\n") {
			t.Errorf("Lines(%q) has other line breaks: %q", s, lines)
		}
		if again := Text(text); len(text) <= MaxRunes && again != text {
			t.Errorf("Text of %q is %q: what is safe is not left as it is", text, again)
		}
		if plain := strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) < 0; plain && len(s) <= MaxRunes && text != s {
			t.Errorf("Text(%q) = %q: it was printable", s, text)
		}
		if strings.ReplaceAll(Lines(s), "\n", `\n`) != text && utf8.RuneCountInString(s) <= MaxRunes {
			t.Errorf("Text(%q) = %q, and Lines says %q", s, text, lines)
		}
	})
}
