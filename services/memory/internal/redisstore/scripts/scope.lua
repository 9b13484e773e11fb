-- Changes the state that several sessions share. KEYS: state, reqs of the scope.
return request(KEYS[1], KEYS[2], ARGV[1], ARGV[2], 3)
