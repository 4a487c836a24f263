// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sanitize makes text that came from a pod, a file or a server safe to write to a terminal: no control characters, escape
// sequences, line breaks or reordering marks reach it, and nothing is without bound.
package sanitize

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxRunes bounds what Text returns. The longest name of Kubernetes has 253 characters.
const MaxRunes = 1024

// Text returns s in one line: what does not print as a character of its own is written as an escape of Go (\n, \x1b, \u202e), and
// what follows after MaxRunes runes is cut, with an ellipsis in its place.
func Text(s string) string {
	var b strings.Builder
	for n := 0; len(s) > 0; n++ {
		if n == MaxRunes {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		writeRune(&b, s[:size], r)
		s = s[size:]
	}
	return b.String()
}

// Lines is Text for many lines: line feeds stay, and nothing is cut.
func Lines(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == '\n' {
			b.WriteByte('\n')
		} else {
			writeRune(&b, s[:size], r)
		}
		s = s[size:]
	}
	return b.String()
}

// JSON escapes what does not print in a JSON text, which means the same afterwards. Outside of its strings a JSON text holds
// nothing of the kind but line breaks, which stay. (encoding/json escapes no C1 control characters and no reordering marks.)
func JSON(text []byte) []byte {
	return inStrings(text, func(out []byte, r rune) []byte {
		high, low := utf16.EncodeRune(r)
		return fmt.Appendf(out, `\u%04x\u%04x`, high, low)
	})
}

// JSONForYAML is JSON for a text that a reader of YAML gets, which knows all of JSON's escapes but no surrogate pairs.
func JSONForYAML(text []byte) []byte {
	return inStrings(text, func(out []byte, r rune) []byte { return fmt.Appendf(out, `\U%08x`, r) })
}

// inStrings escapes what does not print; beyond writes those above U+FFFF.
func inStrings(text []byte, beyond func(out []byte, r rune) []byte) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == '\n' || prints(r, size):
			out = append(out, text[:size]...)
		case r > 0xffff:
			out = beyond(out, r)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}

// prints excludes the controls (C0, C1, DEL), the format characters (reordering marks, zero-width ones), line separators, every
// space but U+0020, and bytes that are no UTF-8.
func prints(r rune, size int) bool {
	return unicode.IsPrint(r) && !(r == utf8.RuneError && size == 1)
}

func writeRune(b *strings.Builder, raw string, r rune) {
	switch {
	case prints(r, len(raw)):
		b.WriteString(raw)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\r':
		b.WriteString(`\r`)
	case r == '\t':
		b.WriteString(`\t`)
	case r == utf8.RuneError:
		fmt.Fprintf(b, `\x%02x`, raw[0])
	case r < utf8.RuneSelf:
		fmt.Fprintf(b, `\x%02x`, r)
	case r > 0xffff:
		fmt.Fprintf(b, `\U%08x`, r)
	default:
		fmt.Fprintf(b, `\u%04x`, r)
	}
}
