package masker_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

func pick(rng *rand.Rand, words ...string) string { return words[rng.IntN(len(words))] }

func hexOf(rng *rand.Rand, n int) string {
	var b strings.Builder
	for range n {
		b.WriteByte("0123456789abcdef"[rng.IntN(16)])
	}
	return b.String()
}

func uuidOf(rng *rand.Rand) string {
	return hexOf(rng, 8) + "-" + hexOf(rng, 4) + "-4" + hexOf(rng, 3) + "-a" + hexOf(rng, 3) + "-" + hexOf(rng, 12)
}

func hostOf(rng *rand.Rand) string {
	return fmt.Sprintf("%s-%02d.%s.example.com", pick(rng, "web", "db", "cache", "node", "worker"), rng.IntN(40), pick(rng, "eu-west-1", "us-east-1", "lab", "prod"))
}

func podOf(rng *rand.Rand) string {
	return fmt.Sprintf("%s-%s-%s", pick(rng, "api", "frontend", "billing", "ingress-nginx-controller", "coredns"), hexOf(rng, 10), hexOf(rng, 5))
}

func clock(rng *rand.Rand) string {
	return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02d.%03dZ", 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1000))
}

// benignLine returns one line of ordinary output without a secret.
func benignLine(rng *rand.Rand) string {
	kinds := []func(*rand.Rand) string{ansibleLine, kubectlLine, helmLine, tofuLine, sshLine, goLine, serverLine}
	return kinds[rng.IntN(len(kinds))](rng)
}

func ansibleLine(rng *rand.Rand) string {
	host := hostOf(rng)
	switch rng.IntN(10) {
	case 0:
		return fmt.Sprintf("TASK [%s : %s] %s", pick(rng, "common", "nginx", "postgres", "users"), pick(rng, "install packages", "template configuration file", "ensure service is running", "create database user"), strings.Repeat("*", 20+rng.IntN(40)))
	case 1:
		return fmt.Sprintf("\x1b[0;32mok: [%s]\x1b[0m", host)
	case 2:
		return fmt.Sprintf("\x1b[0;33mchanged: [%s] => (item=%s)\x1b[0m", host, pick(rng, "nginx", "openssl", "curl", "ca-certificates"))
	case 3:
		return fmt.Sprintf("%-40s : ok=%d changed=%d unreachable=0 failed=%d skipped=%d rescued=0 ignored=0", host, rng.IntN(90), rng.IntN(30), rng.IntN(2), rng.IntN(20))
	case 4:
		return fmt.Sprintf(`fatal: [%s]: FAILED! => {"changed": false, "msg": "Unable to start service %s: Job for %s.service failed because the control process exited with error code.\nSee \"systemctl status %s.service\" for details.\n"}`, host, "nginx", "nginx", "nginx")
	case 5:
		return fmt.Sprintf(`ok: [%s] => {"changed": false, "checksum": "%s", "dest": "/etc/%s.conf", "gid": 0, "mode": "0644", "size": %d, "state": "file", "uid": 0}`, host, hexOf(rng, 40), pick(rng, "app", "nginx/nginx", "sysctl"), rng.IntN(99999))
	case 6:
		return fmt.Sprintf("skipping: [%s] => {\"censored\": \"the output has been hidden due to the fact that 'no_log: true' was specified for this result\", \"changed\": false}", host)
	case 7:
		return "PLAY RECAP " + strings.Repeat("*", 60)
	case 8:
		return fmt.Sprintf("<%s> ESTABLISH SSH CONNECTION FOR USER: deploy", host)
	}
	return fmt.Sprintf(`<%s> SSH: EXEC ssh -C -o ControlMaster=auto -o ControlPersist=60s -o 'User="deploy"' -o ConnectTimeout=10 -o 'ControlPath="/home/deploy/.ansible/cp/%s"' %s '/bin/sh -c '"'"'echo ~deploy && sleep 0'"'"''`, host, hexOf(rng, 10), host)
}

func kubectlLine(rng *rand.Rand) string {
	switch rng.IntN(9) {
	case 0:
		return fmt.Sprintf("%-12s %-50s %d/%d   %-18s %d   %dd", pick(rng, "default", "kube-system", "billing"), podOf(rng), rng.IntN(3), 2, pick(rng, "Running", "CrashLoopBackOff", "Completed", "ImagePullBackOff"), rng.IntN(20), rng.IntN(300))
	case 1:
		return fmt.Sprintf("deployment.apps/%s %s", pick(rng, "api", "frontend", "billing"), pick(rng, "created", "configured", "unchanged"))
	case 2:
		return fmt.Sprintf(`Waiting for deployment "%s" rollout to finish: %d out of %d new replicas have been updated...`, pick(rng, "api", "frontend"), rng.IntN(5), 5)
	case 3:
		return fmt.Sprintf("    Image:          registry.example.com/team/%s@sha256:%s", pick(rng, "api", "web"), hexOf(rng, 64))
	case 4:
		return fmt.Sprintf("  uid: %s", uuidOf(rng))
	case 5:
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"%s","namespace":"default","resourceVersion":"%d","uid":"%s"},"data":{"LOG_LEVEL":"info","PORT":"8080"}}`, pick(rng, "settings", "env"), rng.IntN(9999999), uuidOf(rng))
	case 6:
		return fmt.Sprintf("I%02d%02d %02d:%02d:%02d.%06d %7d round_trippers.go:553] GET https://10.96.%d.%d:6443/api/v1/namespaces/default/pods?limit=500 200 OK in %d milliseconds", 1+rng.IntN(12), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(1000000), rng.IntN(90000), rng.IntN(255), rng.IntN(255), rng.IntN(300))
	case 7:
		return fmt.Sprintf("  Normal   Scheduled  %ds   default-scheduler  Successfully assigned default/%s to %s", rng.IntN(60), podOf(rng), hostOf(rng))
	}
	return "      kubectl.kubernetes.io/last-applied-configuration: |"
}

func helmLine(rng *rand.Rand) string {
	switch rng.IntN(6) {
	case 0:
		return fmt.Sprintf(`Release "%s" has been upgraded. Happy Helming!`, pick(rng, "api", "redis", "prometheus"))
	case 1:
		return fmt.Sprintf("LAST DEPLOYED: Sun Nov %2d %02d:%02d:%02d 2026", 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), rng.IntN(60))
	case 2:
		return fmt.Sprintf("ready.go:%d: [debug] Deployment is not ready: default/%s. %d out of %d expected pods are ready", rng.IntN(400), pick(rng, "api", "web"), rng.IntN(3), 3)
	case 3:
		return fmt.Sprintf("client.go:%d: [debug] Patch Deployment \"%s\" in namespace default", rng.IntN(900), pick(rng, "api", "web"))
	case 4:
		return fmt.Sprintf("helm.sh/chart: %s-%d.%d.%d", pick(rng, "redis", "postgresql", "nginx"), rng.IntN(20), rng.IntN(20), rng.IntN(20))
	}
	return `          value: {{ .Values.image.repository | quote }}:{{ .Values.image.tag | default "latest" }}`
}

func tofuLine(rng *rand.Rand) string {
	switch rng.IntN(8) {
	case 0:
		return fmt.Sprintf("aws_instance.web[%d]: Refreshing state... [id=i-0%s]", rng.IntN(9), hexOf(rng, 16))
	case 1:
		return fmt.Sprintf("\x1b[0m\x1b[1maws_security_group.%s: Creation complete after %ds [id=sg-0%s]\x1b[0m", pick(rng, "db", "web"), rng.IntN(60), hexOf(rng, 16))
	case 2:
		return fmt.Sprintf("      \x1b[32m+\x1b[0m\x1b[0m %-28s = (known after apply)", pick(rng, "arn", "id", "private_dns", "availability_zone", "password"))
	case 3:
		return fmt.Sprintf("Plan: %d to add, %d to change, %d to destroy.", rng.IntN(40), rng.IntN(9), rng.IntN(5))
	case 4:
		return fmt.Sprintf(`{"@level":"info","@message":"aws_instance.web: Still creating... [%ds elapsed]","@module":"tofu.ui","@timestamp":"%s","hook":{"resource":{"addr":"aws_instance.web"},"elapsed_seconds":%d},"type":"apply_progress"}`, rng.IntN(99), clock(rng), rng.IntN(99))
	case 5:
		return fmt.Sprintf("  ~ user_data = \"%s\" -> \"%s\"", hexOf(rng, 40), hexOf(rng, 40))
	case 6:
		return "│ Error: error configuring provider: no valid credential sources found — please see the documentation"
	}
	return fmt.Sprintf("- Installed hashicorp/aws v%d.%d.%d (signed, key ID %s)", rng.IntN(6), rng.IntN(90), rng.IntN(9), strings.ToUpper(hexOf(rng, 16)))
}

func sshLine(rng *rand.Rand) string {
	switch rng.IntN(7) {
	case 0:
		return fmt.Sprintf("debug1: Connecting to %s [10.%d.%d.%d] port 22.", hostOf(rng), rng.IntN(255), rng.IntN(255), rng.IntN(255))
	case 1:
		return "debug1: Offering public key: /home/deploy/.ssh/id_ed25519 ED25519 SHA256:" + token(rng, 43)
	case 2:
		return "debug1: kex: algorithm: curve25519-sha256@libssh.org"
	case 3:
		return fmt.Sprintf("-rw-r--r-- 1 root root %8d Nov %2d %02d:%02d %s.conf", rng.IntN(9999999), 1+rng.IntN(28), rng.IntN(24), rng.IntN(60), pick(rng, "nginx", "resolv", "host"))
	case 4:
		return "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + token(rng, 43) + " deploy@" + hostOf(rng)
	case 5:
		return fmt.Sprintf("%s sshd[%d]: Accepted publickey for deploy from 10.0.%d.%d port %d ssh2: ED25519 SHA256:%s", clock(rng), rng.IntN(30000), rng.IntN(255), rng.IntN(255), rng.IntN(65000), token(rng, 43))
	}
	return fmt.Sprintf("%08x: %s %s %s %s  ................", rng.IntN(1<<20)*16, hexOf(rng, 4), hexOf(rng, 4), hexOf(rng, 4), hexOf(rng, 4))
}

func goLine(rng *rand.Rand) string {
	switch rng.IntN(7) {
	case 0:
		return fmt.Sprintf("ok  \tgithub.com/example/service/internal/%s\t%d.%03ds\tcoverage: %d.%d%% of statements", pick(rng, "store", "api", "queue"), rng.IntN(30), rng.IntN(1000), rng.IntN(100), rng.IntN(10))
	case 1:
		return fmt.Sprintf("--- PASS: Test%s/%s (%d.%02ds)", pick(rng, "Encode", "Store", "Handler"), pick(rng, "empty", "one_item", "unicode_é"), rng.IntN(3), rng.IntN(100))
	case 2:
		return fmt.Sprintf("\t/usr/local/go/src/runtime/panic.go:%d +0x%s", rng.IntN(1500), hexOf(rng, 3))
	case 3:
		return fmt.Sprintf("goroutine %d [chan receive, %d minutes]:", rng.IntN(900), rng.IntN(60))
	case 4:
		return fmt.Sprintf("main.(*server).handle(0xc000%s, {0x%s, 0xc000%s}, 0x%s)", hexOf(rng, 6), hexOf(rng, 6), hexOf(rng, 6), hexOf(rng, 2))
	case 5:
		return fmt.Sprintf("h1:%s= github.com/example/module v1.%d.%d", token(rng, 43), rng.IntN(30), rng.IntN(30))
	}
	return fmt.Sprintf("    store_test.go:%d: got []byte{0x%s, 0x%s, 0x%s}, want [%d %d %d %d]", rng.IntN(400), hexOf(rng, 2), hexOf(rng, 2), hexOf(rng, 2), rng.IntN(256), rng.IntN(256), rng.IntN(256), rng.IntN(256))
}

func serverLine(rng *rand.Rand) string {
	switch rng.IntN(5) {
	case 0:
		return fmt.Sprintf(`10.0.%d.%d - - [29/Nov/2026:%02d:%02d:%02d +0000] "GET /v1/items?page=%d&sort=name%%20asc HTTP/1.1" 200 %d "-" "curl/8.5.0"`, rng.IntN(255), rng.IntN(255), rng.IntN(24), rng.IntN(60), rng.IntN(60), rng.IntN(99), rng.IntN(99999))
	case 1:
		return fmt.Sprintf(`time=%s level=INFO msg="request served" method=POST path=/api/orders status=201 duration=%dms request_id=%s user_agent="Mozilla/5.0 (X11; Linux x86_64)"`, clock(rng), rng.IntN(900), uuidOf(rng))
	case 2:
		return fmt.Sprintf(`{"ts":"%s","lvl":"warn","msg":"retrying \"connect\" to C:\\Program Files\\App\\app.exe","attempt":%d}`, clock(rng), rng.IntN(9))
	case 3:
		return fmt.Sprintf("<tr><td class=\"name\">%s</td><td>&nbsp;%d &amp; more &lt;none&gt;</td></tr>", hostOf(rng), rng.IntN(999))
	}
	return fmt.Sprintf("%s [error] connection to server at \"%s\" (10.0.0.%d), port 5432 failed: FATAL:  password authentication failed for user \"app\"", clock(rng), hostOf(rng), rng.IntN(255))
}
