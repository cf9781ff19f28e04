// Decodes Kubernetes manifests of the kind CronJob with Kubernetes' own types. It refuses unknown
// fields, which the API server would drop with a warning.
package main

import (
	"fmt"
	"os"

	batchv1 "k8s.io/api/batch/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := check(file); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
		fmt.Printf("%s is a CronJob\n", file)
	}
}

func check(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var job batchv1.CronJob
	if err := yaml.UnmarshalStrict(text, &job); err != nil {
		return err
	}
	if job.Kind != "CronJob" || job.APIVersion != "batch/v1" {
		return fmt.Errorf("%s %s is not a CronJob of batch/v1", job.APIVersion, job.Kind)
	}
	if len(job.Spec.JobTemplate.Spec.Template.Spec.Containers) == 0 {
		return fmt.Errorf("no container")
	}
	return nil
}
