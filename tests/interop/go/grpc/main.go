// SPDX-License-Identifier: Apache-2.0

// Command grpc drives github.com/apache/rocketmq-clients/golang/v5.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"

	"aerobee/interop/link"
)

type driver struct {
	mutex     sync.Mutex
	producers map[string]rmq.Producer
	simple    map[string]rmq.SimpleConsumer
	seen      map[string]*link.Seen
	closers   map[string]func() error
	handles   map[int]*rmq.MessageView
}

func main() {
	_ = os.Setenv(rmq.CLIENT_LOG_LEVEL, "error")
	_ = os.Setenv(rmq.ENABLE_CONSOLE_APPENDER, "true")
	rmq.ResetLogger()
	rmq.EnableSsl = false
	d := &driver{
		producers: map[string]rmq.Producer{},
		simple:    map[string]rmq.SimpleConsumer{},
		seen:      map[string]*link.Seen{},
		closers:   map[string]func() error{},
		handles:   map[int]*rmq.MessageView{},
	}
	link.Serve(d.handle)
}

func (d *driver) handle(request link.Request) (any, error) {
	switch request.Op {
	case "producer":
		return nil, d.startProducer(request)
	case "send":
		return d.send(request)
	case "consumer":
		return nil, d.startConsumer(request)
	case "received":
		d.mutex.Lock()
		defer d.mutex.Unlock()
		return d.seen[request.Name].Since(request.From), nil
	case "receive":
		return d.receive(request)
	case "ack":
		consumer, view := d.held(request)
		return nil, consumer.Ack(context.Background(), view)
	case "change":
		consumer, view := d.held(request)
		return nil, consumer.ChangeInvisibleDuration(view, time.Duration(request.InvisibleMs)*time.Millisecond)
	case "close":
		d.mutex.Lock()
		stop := d.closers[request.Name]
		delete(d.closers, request.Name)
		d.mutex.Unlock()
		if stop == nil {
			return nil, nil
		}
		return nil, stop()
	}
	return nil, fmt.Errorf("unknown op %s", request.Op)
}

func (d *driver) held(request link.Request) (rmq.SimpleConsumer, *rmq.MessageView) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.simple[request.Name], d.handles[request.Handle]
}

func config(request link.Request) *rmq.Config {
	return &rmq.Config{
		Endpoint:      request.Namesrv,
		ConsumerGroup: request.Group,
		Credentials:   &credentials.SessionCredentials{AccessKey: request.AccessKey, AccessSecret: request.SecretKey},
	}
}

func resolution(word string) rmq.TransactionResolution {
	switch word {
	case "commit":
		return rmq.COMMIT
	case "rollback":
		return rmq.ROLLBACK
	}
	return rmq.UNKNOWN
}

func (d *driver) startProducer(request link.Request) error {
	options := []rmq.ProducerOption{rmq.WithTopics(request.Topics...)}
	if request.Check != "" {
		options = append(options, rmq.WithTransactionChecker(&rmq.TransactionChecker{
			Check: func(*rmq.MessageView) rmq.TransactionResolution { return resolution(request.Check) },
		}))
	}
	made, err := rmq.NewProducer(config(request), options...)
	if err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.producers[request.Name] = made
	d.closers[request.Name] = made.GracefulStop
	return nil
}

func message(spec link.Message) *rmq.Message {
	made := &rmq.Message{Topic: spec.Topic, Body: spec.Bytes()}
	if spec.Tags != "" {
		made.SetTag(spec.Tags)
	}
	if spec.Keys != "" {
		made.SetKeys(strings.Split(spec.Keys, " ")...)
	}
	if spec.ShardingKey != "" {
		made.SetMessageGroup(spec.ShardingKey)
	}
	if spec.DelayMs != 0 {
		made.SetDelayTimestamp(time.Now().Add(time.Duration(spec.DelayMs) * time.Millisecond))
	}
	for key, value := range spec.Properties {
		made.AddProperty(key, value)
	}
	return made
}

func (d *driver) send(request link.Request) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	d.mutex.Lock()
	producer := d.producers[request.Producer]
	d.mutex.Unlock()
	rows := []link.Row{}
	for _, spec := range request.Messages {
		receipts, err := sendOne(ctx, producer, spec)
		if err != nil {
			return nil, err
		}
		rows = append(rows, link.Row{"msgId": receipts[0].MessageID})
	}
	return rows, nil
}

func sendOne(ctx context.Context, producer rmq.Producer, spec link.Message) ([]*rmq.SendReceipt, error) {
	if spec.Local == "" {
		return producer.Send(ctx, message(spec))
	}
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(ctx, message(spec), transaction)
	if err != nil {
		return nil, err
	}
	switch spec.Local {
	case "commit":
		err = transaction.Commit()
	case "rollback":
		err = transaction.RollBack()
	}
	return receipts, err
}

func row(view *rmq.MessageView) link.Row {
	made := link.Row{
		"topic": view.GetTopic(), "msgId": view.GetMessageId(), "keys": strings.Join(view.GetKeys(), " "),
		"attempt": view.GetDeliveryAttempt(), "properties": view.GetProperties(), "at": time.Now().UnixMilli(),
		"tags": view.GetTag(), "messageGroup": view.GetMessageGroup(),
	}
	link.PutBody(made, view.GetBody())
	return made
}

func (d *driver) startConsumer(request link.Request) error {
	subscriptions := map[string]*rmq.FilterExpression{}
	for _, each := range request.Subscriptions {
		kind := rmq.TAG
		if each.Type == "SQL92" {
			kind = rmq.SQL92
		}
		subscriptions[each.Topic] = rmq.NewFilterExpressionWithType(each.Expression, kind)
	}
	if request.Kind == "simple" {
		made, err := rmq.NewSimpleConsumer(config(request),
			rmq.WithSimpleAwaitDuration(5*time.Second), rmq.WithSimpleSubscriptionExpressions(subscriptions))
		if err != nil {
			return err
		}
		if err := made.Start(); err != nil {
			return err
		}
		d.mutex.Lock()
		defer d.mutex.Unlock()
		d.simple[request.Name] = made
		d.closers[request.Name] = made.GracefulStop
		return nil
	}
	seen := &link.Seen{}
	made, err := rmq.NewPushConsumer(config(request),
		rmq.WithPushAwaitDuration(5*time.Second),
		rmq.WithPushSubscriptionExpressions(subscriptions),
		rmq.WithPushConsumptionThreadCount(4),
		rmq.WithPushMaxCacheMessageCount(1024),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
			seen.Add(row(view))
			if int(view.GetDeliveryAttempt()) <= request.FailTimes {
				return rmq.FAILURE
			}
			return rmq.SUCCESS
		}}))
	if err != nil {
		return err
	}
	if err := made.Start(); err != nil {
		return err
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.seen[request.Name] = seen
	d.closers[request.Name] = made.GracefulStop
	return nil
}

func (d *driver) receive(request link.Request) (any, error) {
	d.mutex.Lock()
	consumer := d.simple[request.Name]
	d.mutex.Unlock()
	found, err := consumer.Receive(
		context.Background(), int32(request.Max), time.Duration(request.InvisibleMs)*time.Millisecond)
	if err != nil {
		if status, ok := rmq.AsErrRpcStatus(err); ok && status.GetMessage() == "no new message" ||
			strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") || strings.Contains(err.Error(), "no new message") {
			return []link.Row{}, nil
		}
		return nil, err
	}
	rows := []link.Row{}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, view := range found {
		made := row(view)
		handle := len(d.handles) + 1
		d.handles[handle] = view
		made["handle"] = handle
		rows = append(rows, made)
	}
	return rows, nil
}
