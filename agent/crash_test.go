package agent

func agentProcess(args []string) int { return 0 }
