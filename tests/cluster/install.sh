#!/usr/bin/env bash
# Installs KUN into a running cluster by its chart, creates a RedisCluster, and waits until it is Ready.
# usage: [CLUSTER=0..15] install.sh PROGRAM
set -euo pipefail
program="$(realpath "$1")"
. "$(dirname "$0")/settings.sh"

found
export KUBECONFIG="$STATE/kubeconfig/admin" KUBECACHEDIR="$STATE/kubectl-cache"
kubectl() { "$TOOLS/kubectl" "$@"; }

"$HERE/load.sh" "$("$HERE/kun-image.sh" "$program")"
"$("$HERE/tools.sh")/helm" upgrade --install --wait kun "$HERE/../../deploy/chart" --namespace kun-system --create-namespace \
    --set image.repository=kun.test/kun --set image.tag=test
kubectl wait --for=condition=Available apiservice/v1.redis.kun.io --timeout=120s
sed 's|^  version: "7.0"|&\n  image: kun.test/redis:7.0|' "$HERE/../../deploy/examples/orders.yaml" | kubectl apply -f -
kubectl wait rediscluster/orders --for=condition=Ready --timeout=120s
kubectl get redisclusters,pods
