// SPDX-License-Identifier: Apache-2.0

// Command load is github.com/apache/rocketmq-client-go/v2 as a load, for benchmarks/client.py: what its users see. It
// does what benchmarks/java/ClientLoad.java does, and prints one line of JSON.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

func main() {
	rlog.SetLogLevel("error")
	var err error
	switch os.Args[1] {
	case "produce": // namesrv topic workers size seconds
		err = produce(os.Args[2], os.Args[3], number(os.Args[4]), number(os.Args[5]), seconds(os.Args[6]))
	case "consume": // namesrv topic group seconds
		err = consume(os.Args[2], os.Args[3], os.Args[4], seconds(os.Args[5]))
	default:
		err = fmt.Errorf("unknown: %s", os.Args[1])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func number(text string) int {
	found, _ := strconv.Atoi(text)
	return found
}

func seconds(text string) time.Duration {
	found, _ := strconv.ParseFloat(text, 64)
	return time.Duration(found * float64(time.Second))
}

func cpu() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func resolver(namesrv string) primitive.NsResolver {
	return primitive.NewPassthroughResolver([]string{namesrv})
}

// Workers that send and wait, a third of the time to warm up.
func produce(namesrv, topic string, workers, size int, length time.Duration) error {
	sender, err := rocketmq.NewProducer(
		producer.WithNsResolver(resolver(namesrv)), producer.WithGroupName("go-load"),
		producer.WithCompressMsgBodyOverHowmuch(1<<30))
	if err != nil {
		return err
	}
	if err := sender.Start(); err != nil {
		return err
	}
	body := []byte(strings.Repeat("x", size))
	var sent, failed int64
	began := time.Now()
	counted, end := began.Add(length/3), began.Add(length)
	var done sync.WaitGroup
	for i := 0; i < workers; i++ {
		done.Add(1)
		go func() {
			defer done.Done()
			for now := time.Now(); now.Before(end); now = time.Now() {
				_, err := sender.SendSync(context.Background(), primitive.NewMessage(topic, body).WithTag("TagA"))
				if err != nil {
					atomic.AddInt64(&failed, 1)
				} else if now.After(counted) {
					atomic.AddInt64(&sent, 1)
				}
			}
		}()
	}
	time.Sleep(time.Until(counted))
	before := cpu()
	done.Wait()
	report(sent, time.Since(counted), failed, cpu()-before)
	return nil
}

// A push consumer over a backlog, from the 1000th message to the last that came within the time.
func consume(namesrv, topic, group string, length time.Duration) error {
	reader, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(resolver(namesrv)), consumer.WithGroupName(group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumeMessageBatchMaxSize(32))
	if err != nil {
		return err
	}
	var got int64
	count := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		atomic.AddInt64(&got, int64(len(messages)))
		return consumer.ConsumeSuccess, nil
	}
	if err := reader.Subscribe(topic, consumer.MessageSelector{}, count); err != nil {
		return err
	}
	if err := reader.Start(); err != nil {
		return err
	}
	limit := time.Now().Add(30 * time.Second)
	for atomic.LoadInt64(&got) < 1000 && time.Now().Before(limit) {
		time.Sleep(time.Millisecond)
	}
	first, before, began := atomic.LoadInt64(&got), cpu(), time.Now()
	last, lastAt, used := first, began, before
	for time.Now().Before(began.Add(length)) && time.Now().Before(lastAt.Add(500*time.Millisecond)) {
		time.Sleep(5 * time.Millisecond)
		if now := atomic.LoadInt64(&got); now > last {
			last, lastAt, used = now, time.Now(), cpu()
		}
	}
	report(last-first, lastAt.Sub(began), 0, used-before)
	return nil
}

func report(messages int64, took time.Duration, failed int64, used time.Duration) {
	fmt.Printf("{\"messages\":%d,\"seconds\":%.6f,\"refused\":%d,\"cpu_seconds\":%.6f}\n",
		messages, took.Seconds(), failed, used.Seconds())
}
