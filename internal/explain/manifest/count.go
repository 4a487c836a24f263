// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// How many containers a Pod has, told before it is decoded: three bytes may stand for one, which then takes a kilobyte.

package manifest

import (
	"encoding/json"
	"fmt"
)

// counter is how many items a field lists. A field that occurs twice is decoded twice, so that all its lists count.
type counter int

// UnmarshalJSON implements json.Unmarshaler. What is no list counts nothing; decoding the Pod tells what is wrong with it.
func (c *counter) UnmarshalJSON(text []byte) error {
	var items []struct{}
	_ = json.Unmarshal(text, &items)
	*c += counter(len(items))
	return nil
}

// counted is where a Pod lists its containers.
type counted struct {
	Spec struct {
		Containers          counter `json:"containers"`
		InitContainers      counter `json:"initContainers"`
		EphemeralContainers counter `json:"ephemeralContainers"`
	} `json:"spec"`
	Status struct {
		ContainerStatuses          counter `json:"containerStatuses"`
		InitContainerStatuses      counter `json:"initContainerStatuses"`
		EphemeralContainerStatuses counter `json:"ephemeralContainerStatuses"`
	} `json:"status"`
}

// count adds a Pod's containers, and refuses a Pod, or a Set, of too many.
func (s *Set) count(pod []byte) error {
	var lists counted
	_ = json.Unmarshal(pod, &lists) // what is wrong with it is found where it is decoded
	specified := lists.Spec.Containers + lists.Spec.InitContainers + lists.Spec.EphemeralContainers
	reported := lists.Status.ContainerStatuses + lists.Status.InitContainerStatuses + lists.Status.EphemeralContainerStatuses
	most := int(max(specified, reported))
	if most > maxContainers {
		return fmt.Errorf("it has more than %d containers", maxContainers)
	}
	if s.containers += most; s.containers > maxAllContainers {
		return fmt.Errorf("the Pods of the input have more than %d containers", maxAllContainers)
	}
	return nil
}
