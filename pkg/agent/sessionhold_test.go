package agent_test

func lossTests() sessionTests { return nil }
