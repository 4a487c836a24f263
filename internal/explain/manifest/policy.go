// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// A JobMeshPolicy from a file is checked as the API server would check it: by the CRD, with the API server's own code.

package manifest

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	sigsjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/jobmesh/jobmesh/api/v1alpha1"
	"github.com/jobmesh/jobmesh/internal/policy"
)

//go:generate cp ../../../config/crd/bases/jobmesh.dev_jobmeshpolicies.yaml jobmeshpolicies.yaml

//go:embed jobmeshpolicies.yaml
var crd []byte

// maxErrors bounds how many faults of one policy are named.
const maxErrors = 3

// checker holds the CRD's rules, compiled.
type checker struct {
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

var newChecker = sync.OnceValues(func() (*checker, error) {
	var definition apiextensionsv1.CustomResourceDefinition
	if err := yaml.UnmarshalStrict(crd, &definition); err != nil {
		return nil, err
	}
	var props apiextensions.JSONSchemaProps
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		definition.Spec.Versions[0].Schema.OpenAPIV3Schema, &props, nil)
	if err != nil {
		return nil, err
	}
	structural, err := schema.NewStructural(&props)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(&props)
	if err != nil {
		return nil, err
	}
	return &checker{structural, validator, cel.NewValidator(structural, true, celconfig.PerCallLimit)}, nil
})

// decodePolicy reads a policy. Its status is left out, as it is when a policy is created.
func decodePolicy(raw []byte) (*v1alpha1.JobMeshPolicy, error) {
	check, err := newChecker()
	if err != nil {
		return nil, fmt.Errorf("reading the CRD: %w", err)
	}
	var object map[string]any
	if err := sigsjson.UnmarshalCaseSensitivePreserveInts(raw, &object); err != nil {
		return nil, plain(err)
	}
	delete(object, "status")
	defaulting.PruneNonNullableNullsWithoutDefaults(object, check.structural)
	defaulting.Default(object, check.structural)
	faults := check.validate(object)

	var p v1alpha1.JobMeshPolicy
	unknown, err := sigsjson.UnmarshalStrict(raw, &p)
	for _, fault := range unknown {
		// A status may come from a newer operator.
		if !strings.Contains(fault.Error(), `"status.`) {
			faults = append(faults, fault)
		}
	}
	if len(faults) == 0 && err != nil {
		faults = append(faults, plain(err))
	}
	if len(faults) == 0 {
		if _, err := policy.Selector(&p); err != nil {
			faults = append(faults, err)
		}
	}
	slices.SortFunc(faults, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	if len(faults) > maxErrors {
		faults = append(faults[:maxErrors], fmt.Errorf("and %d more", len(faults)-maxErrors))
	}
	if len(faults) > 0 {
		return nil, errors.New(joined(faults))
	}
	p.Status = v1alpha1.JobMeshPolicyStatus{}
	return &p, nil
}

// validate applies the rules in the order of the API server, which leaves CEL out where the schema is already violated.
func (c *checker) validate(object map[string]any) []error {
	found := validateMetadata(object)
	found = append(found, validation.ValidateCustomResource(nil, object, c.schema)...)
	found = append(found, listtype.ValidateListSetsAndMaps(nil, c.structural, object)...)
	if len(found) == 0 {
		violated, _ := c.cel.Validate(context.Background(), nil, c.structural, object, nil, celconfig.RuntimeCELCostBudget)
		found = append(found, violated...)
	}
	faults := make([]error, len(found))
	for i := range found {
		faults[i] = found[i]
	}
	return faults
}

func validateMetadata(object map[string]any) field.ErrorList {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	path := field.NewPath("metadata", "name")
	if name == "" {
		return field.ErrorList{field.Required(path, "a policy must have a name")}
	}
	var faults field.ErrorList
	for _, fault := range apivalidation.NameIsDNSSubdomain(name, false) {
		faults = append(faults, field.Invalid(path, name, fault))
	}
	return faults
}

func joined(faults []error) string {
	texts := make([]string, len(faults))
	for i, fault := range faults {
		texts[i] = fault.Error()
	}
	return strings.Join(texts, "; ")
}
