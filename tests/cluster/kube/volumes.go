package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
)

// The name of the provisioner in the StorageClass.
const provisioner = "kun.test/volumes"

// Where a node has what is STATE/NODE/volumes for us.
const onNode = "/var/lib/volumes"

// volumes makes a folder for every claim on the node that the scheduler has chosen. It runs beside the control plane, where
// it sees the folders of all nodes, so it needs no pod on any of them. A volume is root's, as a formatted disk is: who wants
// to write to it as somebody else says fsGroup.
type volumes struct{ state string }

func (v volumes) folder(node, volume string) string {
	return filepath.Join(v.state, node, "volumes", volume)
}

// Provision makes the folder, and the volume that names it.
func (v volumes) Provision(_ context.Context, options controller.ProvisionOptions) (*core.PersistentVolume, controller.ProvisioningState, error) {
	if options.SelectedNode == nil {
		return nil, controller.ProvisioningFinished, fmt.Errorf("no node is chosen yet: the class must have WaitForFirstConsumer")
	}
	node := options.SelectedNode.Name
	if err := os.MkdirAll(v.folder(node, options.PVName), 0o755); err != nil {
		return nil, controller.ProvisioningFinished, err
	}
	here := core.NodeSelectorRequirement{Key: core.LabelHostname, Operator: core.NodeSelectorOpIn, Values: []string{node}}
	terms := []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{here}}}
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: options.PVName},
		Spec: core.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *options.StorageClass.ReclaimPolicy,
			AccessModes:                   options.PVC.Spec.AccessModes,
			Capacity:                      core.ResourceList{core.ResourceStorage: options.PVC.Spec.Resources.Requests[core.ResourceStorage]},
			NodeAffinity:                  &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: terms}},
			PersistentVolumeSource: core.PersistentVolumeSource{
				Local: &core.LocalVolumeSource{Path: filepath.Join(onNode, options.PVName)},
			},
		},
	}, controller.ProvisioningFinished, nil
}

// Delete removes the folder of a volume that nobody claims any more.
func (v volumes) Delete(_ context.Context, volume *core.PersistentVolume) error {
	node := volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0]
	return os.RemoveAll(v.folder(node, volume.Name))
}

// runVolumes serves claims until it is killed. Its arguments are a kubeconfig and the folder with one folder per node.
func runVolumes(arguments []string) int {
	if len(arguments) != 2 {
		fmt.Fprintln(os.Stderr, "usage: volumes KUBECONFIG STATE")
		return 2
	}
	config, err := clientcmd.BuildConfigFromFlags("", arguments[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes:", err)
		return 1
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes:", err)
		return 1
	}
	ctx := context.Background()
	controller.NewProvisionController(klog.FromContext(ctx), client, provisioner, volumes{arguments[1]},
		controller.LeaderElection(false)).Run(ctx)
	return 0
}
