// Decodes Kubernetes manifests with Kubernetes' own types. It refuses unknown fields, which the API
// server would drop with a warning.
package main

import (
	"fmt"
	"os"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	for _, file := range os.Args[1:] {
		kind, err := check(file)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", file, err)
			os.Exit(1)
		}
		fmt.Printf("%s is a %s\n", file, kind)
	}
}

// check returns the kind of the manifest in the file.
func check(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal(text, &kind); err != nil {
		return "", err
	}
	var pod *corev1.PodSpec
	switch kind {
	case metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}:
		var job batchv1.CronJob
		err = yaml.UnmarshalStrict(text, &job)
		pod = &job.Spec.JobTemplate.Spec.Template.Spec
	case metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}:
		var deployment appsv1.Deployment
		err = yaml.UnmarshalStrict(text, &deployment)
		pod = &deployment.Spec.Template.Spec
	default:
		err = fmt.Errorf("%s %s is not expected here", kind.APIVersion, kind.Kind)
	}
	if err == nil && len(pod.Containers) == 0 {
		err = fmt.Errorf("no container")
	}
	return kind.Kind, err
}
