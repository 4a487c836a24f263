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
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

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
	docs, err := jsonDocuments(text)
	if err == nil {
		return docs, nil
	}
	// YAML may begin with a brace too. If it is neither, it was more likely meant to be JSON.
	if docs, yamlErr := yamlDocuments(text); yamlErr == nil {
		return docs, nil
	}
	return nil, err
}

// jsonDocuments reads JSON values, one after the other. An array stands for its items.
func jsonDocuments(text []byte) ([]document, error) {
	var docs []document
	decoder := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		if err := decoder.Decode(&value); errors.Is(err, io.EOF) {
			return docs, nil
		} else if err != nil {
			return nil, fmt.Errorf("invalid JSON after line %d: %w", 1+bytes.Count(text[:decoder.InputOffset()], []byte("\n")), err)
		}
		items := []json.RawMessage{value}
		if value[0] == '[' {
			if err := json.Unmarshal(value, &items); err != nil {
				return nil, err
			}
		}
		for _, item := range items {
			docs = append(docs, document{item, func() error { return nil }})
		}
	}
}

func yamlDocuments(text []byte) ([]document, error) {
	var docs []document
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for n := 1; ; n++ {
		source, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return docs, nil
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
