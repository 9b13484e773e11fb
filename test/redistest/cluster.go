package redistest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/troupe-dev/troupe/test/loopback"
)

// slotCount is the number of hash slots of a Redis Cluster.
const slotCount = 16384

// StartCluster runs a Redis Cluster of three masters until the test ends. It returns the URL with which redisconn
// connects to it.
func StartCluster(t testing.TB) string {
	t.Helper()
	url, _ := StartClusterServers(t)
	return url
}

// StartClusterServers works like StartCluster and also returns the servers, which a test may kill and restart.
func StartClusterServers(t testing.TB) (url string, servers []*Server) {
	t.Helper()
	const masters = 3
	nodes := make([]*redis.Client, masters)
	addrs, buses := make([]string, masters), make([]string, masters)
	for i := range nodes {
		// The default bus port is the client port plus 10,000, which may not be free.
		_, buses[i], _ = net.SplitHostPort(loopback.Address(t))
		server := StartServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "5000", "--cluster-port", buses[i])
		addrs[i], servers = server.Addr, append(servers, server)
		nodes[i] = redis.NewClient(&redis.Options{Addr: server.Addr, DisableIdentity: true})
		defer func() { _ = nodes[i].Close() }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	for i, node := range nodes {
		first, last := i*slotCount/masters, (i+1)*slotCount/masters-1
		if err := node.ClusterAddSlotsRange(ctx, first, last).Err(); err != nil {
			t.Fatalf("redistest: slots of node %d: %v", i, err)
		}
		if err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			t.Fatalf("redistest: epoch of node %d: %v", i, err)
		}
	}
	for i, addr := range addrs[1:] {
		host, port, _ := net.SplitHostPort(addr)
		if err := nodes[0].Do(ctx, "CLUSTER", "MEET", host, port, buses[i+1]).Err(); err != nil {
			t.Fatalf("redistest: meeting %s: %v", addr, err)
		}
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !isFormed(ctx, nodes) {
		select {
		case <-ctx.Done():
			t.Fatalf("redistest: the cluster did not come up within %s", waitTimeout)
		case <-tick.C:
		}
	}
	return fmt.Sprintf("redis://%s?addr=%s&addr=%s", addrs[0], addrs[1], addrs[2]), servers
}

// isFormed reports whether every node knows all other nodes and considers the Cluster ok.
func isFormed(ctx context.Context, nodes []*redis.Client) bool {
	for _, node := range nodes {
		info, err := node.ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d", len(nodes))) {
			return false
		}
	}
	return true
}
