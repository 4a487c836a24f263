// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// From bytes to objects: text encodings, YAML and JSON, several documents in one input.

package manifest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

var errTooManyDocuments = fmt.Errorf("the input holds more than %d documents", maxDocuments)

// document is one object as JSON. strict tells what is wrong with the YAML that it was read from, for those who are strict.
type document struct {
	json   []byte
	strict func() error
}

// documents splits an input. Empty documents are left out; an input without any other is an error.
func documents(data []byte) ([]document, error) {
	// Redirections in PowerShell write UTF-16.
	text, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), data)
	if err != nil || !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("this is no YAML and no JSON: it is not a text in UTF-8")
	}
	docs, err := readDocuments(text)
	if err != nil {
		return nil, err
	}
	if len(docs) == 0 {
		return nil, errors.New("the input is empty")
	}
	return docs, nil
}

func readDocuments(text []byte) ([]document, error) {
	if begin := bytes.TrimSpace(text); len(begin) == 0 || (begin[0] != '{' && begin[0] != '[') {
		return yamlDocuments(text)
	}
	docs, rest, jsonErr := jsonDocuments(text)
	switch {
	case jsonErr == nil:
		return docs, nil
	case len(docs) == 0:
		// YAML may begin with a bracket too.
		docs, yamlErr := yamlDocuments(text)
		if yamlErr != nil && jsonBegin.Match(text) {
			return nil, jsonErr
		}
		return docs, yamlErr
	case bytes.HasPrefix(rest, []byte("---")):
		more, err := yamlDocuments(rest)
		return append(docs, more...), err
	}
	return nil, jsonErr
}

// jsonBegin tells a text that was meant to be JSON: a bracket, and what may follow it.
var jsonBegin = regexp.MustCompile(`^\s*[\[{]\s*["{}\[\]]`)

// jsonDocuments reads JSON values, one after the other, and returns those before an error and the text behind them. An array stands
// for its items.
func jsonDocuments(text []byte) (docs []document, rest []byte, err error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	for n := 1; ; n++ {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return docs, nil, nil
		} else if err != nil {
			read := decoder.InputOffset()
			line := 1 + bytes.Count(text[:read], []byte("\n"))
			return docs, bytes.TrimSpace(text[read:]), fmt.Errorf("invalid JSON after line %d: %w", line, err)
		}
		if n > maxDocuments {
			return docs, nil, errTooManyDocuments
		}
		items := []json.RawMessage{value}
		if value[0] == '[' {
			items = nil
			if err := json.Unmarshal(value, &items); err != nil {
				return docs, nil, err
			}
		}
		for _, item := range items {
			docs = append(docs, document{item, func() error { return nil }})
		}
	}
}

func yamlDocuments(text []byte) ([]document, error) {
	var docs []document
	// The line break is for the reader, which may lose a last line without one.
	reader := utilyaml.NewYAMLReader(bufio.NewReader(io.MultiReader(bytes.NewReader(text), strings.NewReader("\n"))))
	for n := 1; ; n++ {
		source, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		switch {
		case n > maxDocuments:
			return nil, errTooManyDocuments
		case len(source) > maxYAMLBytes:
			return nil, fmt.Errorf("a YAML document is larger than %d MiB; read it as JSON (kubectl get -o json)", maxYAMLBytes>>20)
		}
		var text []byte
		if err == nil {
			text, err = yaml.YAMLToJSON(source)
		}
		if err != nil {
			return nil, yamlError(err, n)
		}
		if string(text) == "null" {
			continue
		}
		docs = append(docs, document{text, sync.OnceValue(func() error {
			if _, err := yaml.YAMLToJSONStrict(source); err != nil {
				return yamlError(err, n)
			}
			return nil
		})})
	}
}

// yamlError says in which document the error is, since YAML counts lines from its beginning.
func yamlError(err error, document int) error {
	text := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	text = strings.TrimPrefix(text, "yaml: ")
	if document > 1 {
		text = fmt.Sprintf("document %d: %s", document, text)
	}
	return fmt.Errorf("invalid YAML: %s", text)
}

func isObject(json []byte) bool { return bytes.HasPrefix(json, []byte("{")) }

// plain says in a person's words that a field holds something else than it should.
func plain(err error) error {
	mismatch, ok := errors.AsType[*json.UnmarshalTypeError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%s: must be %s, and is %s", mismatch.Field, wanted(mismatch.Type), mismatch.Value)
}

func wanted(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "a mapping"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	default:
		return "a number"
	}
}
