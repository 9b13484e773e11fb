// Package etcdauth provisions users and roles in the etcd of a mesh: a user for each identity, named by the
// common name of its certificate, and a role for each user (guarantees 2.6, S16, S21). There are no passwords,
// and so no tokens that expire.
//
// orchestrator     reads instances; reads and writes desired states
//
//	memory           reads and writes the records of stores; reads desired states
//	worker/<agent>   reads and writes the instances of its own agent; reads desired states
//	root             everything; creates the others
package etcdauth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/credentials"

	"github.com/troupe-dev/troupe/internal/identity"
	"github.com/troupe-dev/troupe/internal/registry/etcdregistry"
	"github.com/troupe-dev/troupe/pkg/failure"
)

// Root is the name of the user with all rights; etcd requires this name.
const Root = "root"

// Right grants a user access to all keys with a prefix.
type Right struct {
	Prefix string // ends with a slash, so that "a" does not match agent "ab"
	Write  bool   // grants reading and writing (false grants only reading)
}

// User is an etcd user with the complete list of its rights.
type User struct {
	Name   string // common name of the user's certificate
	Rights []Right
}

// Users returns all users of a mesh with the given agents, except root.
func Users(agents []string) []User {
	const desired = etcdregistry.DefaultDesiredPrefix + "/"
	users := []User{
		{identity.ID{Role: identity.Orchestrator}.EtcdUser(), []Right{{etcdregistry.DefaultPrefix + "/", false}, {desired, true}}},
		{identity.ID{Role: identity.Memory}.EtcdUser(), []Right{{etcdregistry.DefaultStorePrefix + "/", true}, {desired, false}}},
	}
	for _, agent := range agents {
		users = append(users, User{
			identity.ID{Role: identity.Worker, Name: agent}.EtcdUser(),
			[]Right{{etcdregistry.DefaultPrefix + "/" + agent + "/", true}, {desired, false}},
		})
	}
	return users
}

// ConnectAndProvision connects to etcd with the credentials and calls Provision. It waits until etcd is reachable
// or ctx ends; then the error says why etcd could not be reached.
func ConnectAndProvision(ctx context.Context, creds credentials.TransportCredentials, endpoints, agents []string) ([]string, error) {
	client, err := etcdregistry.DialWith(creds, endpoints, zap.NewNop())
	if err != nil {
		return nil, err
	}
	if err := etcdregistry.AwaitReachable(ctx, creds, endpoints); err != nil {
		_ = client.Close() // nothing to flush: the client made no call
		return nil, err
	}
	defer func() { _ = client.Close() }() // all calls have returned
	return Provision(ctx, client, agents)
}

// Provision creates the users and roles of a mesh with the given agents, and enables authentication. It revokes
// surplus rights. It is idempotent and safe to run in several processes at once. The client must be root, unless
// authentication is still disabled. Provision returns the users of workers of other agents, which it leaves
// unchanged.
func Provision(ctx context.Context, client *clientv3.Client, agents []string) (others []string, err error) {
	for _, agent := range agents {
		if agent == "" || strings.Contains(agent, "/") {
			return nil, failure.Newf(failure.UserInvalidInput, op, "%q is no name of an agent", agent)
		}
	}
	there, err := client.UserList(ctx)
	if err != nil {
		return nil, wrapError(client, err)
	}
	users := Users(agents)
	each, one := errgroup.WithContext(ctx)
	each.SetLimit(maxConcurrentUsers)
	for _, u := range users {
		each.Go(func() error { return ensureUserAndRole(one, client, u) })
	}
	if err := each.Wait(); err != nil {
		return nil, wrapError(client, err)
	}
	for _, name := range there.Users {
		if strings.HasPrefix(name, string(identity.Worker)+"/") && !slices.ContainsFunc(users, func(u User) bool { return u.Name == name }) {
			others = append(others, name)
		}
	}
	return others, wrapError(client, enableAuth(ctx, client))
}

const (
	op                 = "etcd.Provision"
	maxConcurrentUsers = 8 // number of users provisioned concurrently

	devCATimeout = 10 * time.Second // timeout of ProvisionWithDevCA
)

func wrapError(client *clientv3.Client, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("etcd at %s: %w", strings.Join(client.Endpoints(), ", "), err)
}

// ensureUserAndRole makes sure that a user and a role with its name exist, and that the role has exactly the
// user's rights.
func ensureUserAndRole(ctx context.Context, client *clientv3.Client, u User) error {
	role, err := client.RoleGet(ctx, u.Name)
	if errors.Is(err, rpctypes.ErrRoleNotFound) {
		_, err = client.RoleAdd(ctx, u.Name)
		role = &clientv3.AuthRoleGetResponse{}
	}
	if err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return fmt.Errorf("role %s: %w", u.Name, err)
	}
	missing := slices.Clone(u.Rights)
	for _, p := range role.Perm {
		i := slices.IndexFunc(missing, func(r Right) bool { return matchesPermission(r, p) })
		if i >= 0 {
			missing = slices.Delete(missing, i, i+1)
			continue
		}
		_, err := client.RoleRevokePermission(ctx, u.Name, string(p.GetKey()), string(p.GetRangeEnd()))
		if err != nil && !errors.Is(err, rpctypes.ErrPermissionNotGranted) {
			return fmt.Errorf("role %s: %w", u.Name, err)
		}
	}
	for _, r := range missing {
		if _, err := client.RoleGrantPermission(ctx, u.Name, r.Prefix, clientv3.GetPrefixRangeEnd(r.Prefix), r.permissionType()); err != nil {
			return fmt.Errorf("role %s: %w", u.Name, err)
		}
	}
	return ensureUser(ctx, client, u.Name)
}

func (r Right) permissionType() clientv3.PermissionType {
	if r.Write {
		return clientv3.PermissionType(clientv3.PermReadWrite)
	}
	return clientv3.PermissionType(clientv3.PermRead)
}

func matchesPermission(r Right, p *authpb.Permission) bool {
	return string(p.GetKey()) == r.Prefix && string(p.GetRangeEnd()) == clientv3.GetPrefixRangeEnd(r.Prefix) &&
		clientv3.PermissionType(p.GetPermType()) == r.permissionType()
}

// ensureUser makes sure that a user exists, without a password, and has only the role of the same name.
func ensureUser(ctx context.Context, client *clientv3.Client, name string) error {
	known, err := client.UserGet(ctx, name)
	if errors.Is(err, rpctypes.ErrUserNotFound) {
		_, err = client.UserAddWithOptions(ctx, name, "", &clientv3.UserAddOptions{NoPassword: true})
		known = &clientv3.AuthUserGetResponse{}
	}
	if err != nil && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
		return fmt.Errorf("user %s: %w", name, err)
	}
	for _, role := range known.Roles {
		if role == name {
			continue
		}
		if _, err := client.UserRevokeRole(ctx, name, role); err != nil && !errors.Is(err, rpctypes.ErrRoleNotGranted) {
			return fmt.Errorf("user %s: %w", name, err)
		}
	}
	if slices.Contains(known.Roles, name) {
		return nil
	}
	if _, err := client.UserGrantRole(ctx, name, name); err != nil {
		return fmt.Errorf("user %s: %w", name, err)
	}
	return nil
}

// enableAuth creates the root user and enables authentication, unless it is already enabled.
func enableAuth(ctx context.Context, client *clientv3.Client) error {
	status, err := client.AuthStatus(ctx)
	if err != nil || status.Enabled {
		return err
	}
	if _, err := client.RoleAdd(ctx, Root); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) {
		return fmt.Errorf("role %s: %w", Root, err)
	}
	if err := ensureUser(ctx, client, Root); err != nil {
		return err
	}
	_, err = client.AuthEnable(ctx)
	return err
}

// ProvisionWithDevCA provisions the users for the workers of one agent. It issues itself a root certificate with
// the development CA in a folder. So anyone who can read that folder can act as root.
func ProvisionWithDevCA(ctx context.Context, devCA string, endpoints []string, agent string) error {
	ca, err := identity.OpenCA(devCA)
	if err != nil {
		return err
	}
	root, err := ca.ExternalUserCredentials(Root)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, devCATimeout)
	defer cancel()
	_, err = ConnectAndProvision(ctx, root, endpoints, []string{agent})
	return err
}
