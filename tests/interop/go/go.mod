module aerobee/interop

go 1.22

require (
	github.com/apache/rocketmq-client-go/v2 v2.1.2
	github.com/apache/rocketmq-clients/golang/v5 v5.1.3
)
