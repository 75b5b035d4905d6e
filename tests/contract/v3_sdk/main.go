// Command v3sdk uses the SDK of the v3 API on brokers, and prints a line of JSON for each call.
//
// Usage: v3sdk GROUP CLUSTER_ID URL...
//
// Each URL is the base of the API at one broker. GROUP is a consumer group with a live member.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"github.com/antihax/optional"
	v3 "github.com/confluentinc/kafka-rest-sdk-go/kafkarestv3"
)

// line is what became of one call.
type line struct {
	Broker int         `json:"broker"`
	Step   string      `json:"step"`
	Status int         `json:"status"`
	Value  interface{} `json:"value,omitempty"`
	Code   int32       `json:"code,omitempty"`
	Error  string      `json:"error,omitempty"`
}

// caller makes calls at one broker.
type caller struct {
	broker  int
	base    string
	cluster string
	sdk     *v3.APIClient
	out     *json.Encoder
}

func (c caller) show(step string, value interface{}, response *http.Response, err error) {
	shown := line{Broker: c.broker, Step: step, Value: value}
	if response != nil {
		shown.Status = response.StatusCode
	}
	if err != nil {
		shown.Value, shown.Error = nil, err.Error()
		if known, ok := err.(v3.GenericOpenAPIError); ok {
			shown.Code = codeOf(known)
		}
	}
	if err := c.out.Encode(shown); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// codeOf returns the code that the SDK has decoded, or that of the body which it hands over.
func codeOf(err v3.GenericOpenAPIError) int32 {
	if model, ok := err.Model().(v3.Error); ok {
		return model.ErrorCode
	}
	var body v3.Error
	if json.Unmarshal(err.Body(), &body) != nil {
		return -1
	}
	return body.ErrorCode
}

func text(value string) *string { return &value }

func number(value int32) *int32 { return &value }

func data(kind string, value interface{}) *v3.ProduceRequestData {
	return &v3.ProduceRequestData{Type: kind, Data: &value}
}

func main() {
	group, cluster := os.Args[1], os.Args[2]
	for index, base := range os.Args[3:] {
		settings := v3.NewConfiguration()
		settings.BasePath = base
		c := caller{index, base, cluster, v3.NewAPIClient(settings), json.NewEncoder(os.Stdout)}
		ctx := context.Background()
		topic := fmt.Sprintf("sdk-%d", index)
		c.readCluster(ctx)
		c.createTopic(ctx, topic)
		c.alterConfigs(ctx, topic)
		c.growTopic(topic)
		c.inspectTopic(ctx, topic)
		c.produce(ctx, topic)
		c.readGroup(ctx, group)
		c.changeBrokers(ctx)
		c.deleteTopic(ctx, topic)
	}
}

func (c caller) readCluster(ctx context.Context) {
	clusters, response, err := c.sdk.ClusterV3Api.ClustersGet(ctx)
	c.show("clusters", clusters, response, err)
	cluster, response, err := c.sdk.ClusterV3Api.GetKafkaCluster(ctx, c.cluster)
	c.show("cluster", cluster, response, err)
	brokers, response, err := c.sdk.BrokerV3Api.ClustersClusterIdBrokersGet(ctx, c.cluster)
	c.show("brokers", brokers, response, err)
	broker, response, err := c.sdk.BrokerV3Api.ClustersClusterIdBrokersBrokerIdGet(ctx, c.cluster, 1)
	c.show("broker", broker, response, err)
	_, response, err = c.sdk.ClusterV3Api.GetKafkaCluster(ctx, "another")
	c.show("another cluster", nil, response, err)
}

func (c caller) createTopic(ctx context.Context, topic string) {
	wanted := v3.CreateTopicRequestData{
		TopicName: topic,
		ReplicasAssignments: []v3.CreateTopicRequestDataReplicasAssignments{
			{PartitionId: 0, BrokerIds: []int32{1, 2, 3}},
			{PartitionId: 1, BrokerIds: []int32{2, 3, 1}},
		},
		Configs: []v3.CreateTopicRequestDataConfigs{{Name: "retention.ms", Value: text("3600000")}},
	}
	options := &v3.CreateKafkaTopicOpts{CreateTopicRequestData: optional.NewInterface(wanted)}
	created, response, err := c.sdk.TopicV3Api.CreateKafkaTopic(ctx, c.cluster, options)
	c.show("create", created, response, err)
	found, response, err := c.sdk.TopicV3Api.GetKafkaTopic(ctx, c.cluster, topic)
	c.show("get after create", found, response, err)
	_, response, err = c.sdk.TopicV3Api.CreateKafkaTopic(ctx, c.cluster, options)
	c.show("create again", nil, response, err)
	listed, response, err := c.sdk.TopicV3Api.ListKafkaTopics(ctx, c.cluster)
	c.show("topics", listed, response, err)
}

func (c caller) alterConfigs(ctx context.Context, topic string) {
	api := c.sdk.ConfigsV3Api
	set := v3.UpdateConfigRequestData{Value: text("7200000")}
	response, err := api.UpdateKafkaTopicConfig(ctx, c.cluster, topic, "retention.ms",
		&v3.UpdateKafkaTopicConfigOpts{UpdateConfigRequestData: optional.NewInterface(set)})
	c.show("set config", nil, response, err)
	config, response, err := api.GetKafkaTopicConfig(ctx, c.cluster, topic, "retention.ms")
	c.show("config", config, response, err)
	batch := v3.AlterConfigBatchRequestData{Data: []v3.AlterConfigBatchRequestDataData{
		{Name: "retention.ms", Operation: text("DELETE")},
		{Name: "min.insync.replicas", Value: text("2")},
	}}
	response, err = api.UpdateKafkaTopicConfigBatch(ctx, c.cluster, topic,
		&v3.UpdateKafkaTopicConfigBatchOpts{AlterConfigBatchRequestData: optional.NewInterface(batch)})
	c.show("alter configs", nil, response, err)
	configs, response, err := api.ListKafkaTopicConfigs(ctx, c.cluster, topic)
	c.show("configs", configs, response, err)
	response, err = api.DeleteKafkaTopicConfig(ctx, c.cluster, topic, "min.insync.replicas")
	c.show("reset config", nil, response, err)
	_, response, err = api.GetKafkaTopicConfig(ctx, c.cluster, topic, "no.such.config")
	c.show("unknown config", nil, response, err)
	response, err = api.UpdateKafkaTopicConfig(ctx, c.cluster, topic, "retention.ms",
		&v3.UpdateKafkaTopicConfigOpts{UpdateConfigRequestData: optional.NewInterface(v3.UpdateConfigRequestData{})})
	c.show("config without value", nil, response, err)
	defaults, response, err := api.ListKafkaDefaultTopicConfigs(ctx, c.cluster, topic)
	c.show("default configs", defaults, response, err)
	all, response, err := api.ListKafkaAllTopicConfigs(ctx, c.cluster)
	c.show("all topic configs", all, response, err)
}

// growTopic sends the request that the SDK has no call for.
func (c caller) growTopic(topic string) {
	url := fmt.Sprintf("%s/clusters/%s/topics/%s", c.base, c.cluster, topic)
	body := bytes.NewBufferString(`{"partitions_count": 3}`)
	request, err := http.NewRequest(http.MethodPatch, url, body)
	if err != nil {
		c.show("grow", nil, nil, err)
		return
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	var grown v3.TopicData
	if err == nil {
		defer response.Body.Close()
		err = json.NewDecoder(response.Body).Decode(&grown)
	}
	c.show("grow", grown, response, err)
}

func (c caller) inspectTopic(ctx context.Context, topic string) {
	partitions, response, err := c.sdk.PartitionV3Api.ListKafkaPartitions(ctx, c.cluster, topic)
	c.show("partitions", partitions, response, err)
	partition, response, err := c.sdk.PartitionV3Api.GetKafkaPartition(ctx, c.cluster, topic, 2)
	c.show("partition", partition, response, err)
	_, response, err = c.sdk.PartitionV3Api.GetKafkaPartition(ctx, c.cluster, topic, 9)
	c.show("unknown partition", nil, response, err)
	replicas, response, err := c.sdk.ReplicaApi.
		ClustersClusterIdTopicsTopicNamePartitionsPartitionIdReplicasGet(ctx, c.cluster, topic, 0)
	c.show("replicas", replicas, response, err)
	replica, response, err := c.sdk.ReplicaApi.
		ClustersClusterIdTopicsTopicNamePartitionsPartitionIdReplicasBrokerIdGet(ctx, c.cluster, topic, 0, 2)
	c.show("replica", replica, response, err)
	status, response, err := c.sdk.ReplicaStatusApi.
		ClustersClusterIdTopicsTopicNamePartitionsPartitionIdReplicaStatusGet(ctx, c.cluster, topic, 0)
	c.show("replica status", status, response, err)
	_, response, err = c.sdk.PartitionApi.
		ClustersClusterIdTopicsTopicNamePartitionsPartitionIdReassignmentGet(ctx, c.cluster, topic, 0)
	c.show("no reassignment", nil, response, err)
	running, response, err := c.sdk.PartitionApi.ClustersClusterIdTopicsPartitionsReassignmentGet(ctx, c.cluster)
	c.show("reassignments", running, response, err)
	on, response, err := c.sdk.BrokerV3Api.
		ClustersClusterIdBrokersBrokerIdPartitionReplicasGet(ctx, c.cluster, 1)
	c.show("replicas of a broker", on, response, err)
}

func (c caller) produce(ctx context.Context, topic string) {
	requests := map[string]v3.ProduceRequest{
		"to 0":      {PartitionId: number(0), Value: data("STRING", "zero")},
		"to 1":      {PartitionId: number(1), Value: data("BINARY", "AAEC")},
		"to 2":      {PartitionId: number(2), Value: data("JSON", map[string]int{"a": 1})},
		"by key":    {Key: data("STRING", "k"), Value: data("STRING", "v")},
		"tombstone": {PartitionId: number(0), Key: data("STRING", "k")},
		"headers":   {PartitionId: number(0), Headers: []v3.ProduceRequestHeader{{Name: "h", Value: text("AQ==")}}},
		"malformed": {PartitionId: number(0), Value: data("BINARY", "!!")},
		"schema":    {PartitionId: number(0), Value: data("AVRO", "x")},
		"nowhere":   {PartitionId: number(7), Value: data("STRING", "x")},
	}
	for _, name := range []string{
		"to 0", "to 1", "to 2", "by key", "tombstone", "headers", "malformed", "schema", "nowhere",
	} {
		done, response, err := c.sdk.RecordsV3Api.ClustersClusterIdTopicsTopicNameRecordsPost(ctx, c.cluster, topic,
			&v3.ClustersClusterIdTopicsTopicNameRecordsPostOpts{ProduceRequest: optional.NewInterface(requests[name])})
		c.show("produce "+name, done, response, err)
	}
}

func (c caller) readGroup(ctx context.Context, group string) {
	api := c.sdk.ConsumerGroupV3Api
	groups, response, err := api.ListKafkaConsumerGroups(ctx, c.cluster)
	c.show("groups", groups, response, err)
	found, response, err := api.GetKafkaConsumerGroup(ctx, c.cluster, group)
	c.show("group", found, response, err)
	consumers, response, err := api.ListKafkaConsumers(ctx, c.cluster, group)
	c.show("consumers", consumers, response, err)
	for _, consumer := range consumers.Data {
		one, response, err := api.GetKafkaConsumer(ctx, c.cluster, group, consumer.ConsumerId)
		c.show("consumer", one, response, err)
		owned, response, err := api.ListKafkaConsumerAssignment(ctx, c.cluster, group, consumer.ConsumerId)
		c.show("assignments", owned, response, err)
		for _, row := range owned.Data {
			assignment, response, err := api.GetKafkaConsumerAssignment(
				ctx, c.cluster, group, consumer.ConsumerId, row.TopicName, row.PartitionId)
			c.show("assignment", assignment, response, err)
			lag, response, err := c.sdk.PartitionV3Api.GetKafkaConsumerLag(
				ctx, c.cluster, group, row.TopicName, row.PartitionId)
			c.show("lag", lag, response, err)
		}
	}
	lags, response, err := api.ListKafkaConsumerLags(ctx, c.cluster, group)
	c.show("lags", lags, response, err)
	summary, response, err := api.GetKafkaConsumerGroupLagSummary(ctx, c.cluster, group)
	c.show("lag summary", summary, response, err)
	_, response, err = api.GetKafkaConsumerGroup(ctx, c.cluster, "no-such-group")
	c.show("unknown group", nil, response, err)
}

func (c caller) changeBrokers(ctx context.Context) {
	api := c.sdk.ConfigsV3Api
	set := v3.UpdateConfigRequestData{Value: text("99999999")}
	response, err := api.UpdateKafkaClusterConfig(ctx, c.cluster, "log.retention.ms",
		&v3.UpdateKafkaClusterConfigOpts{UpdateConfigRequestData: optional.NewInterface(set)})
	c.show("set cluster config", nil, response, err)
	configs, response, err := api.ListKafkaClusterConfigs(ctx, c.cluster)
	c.show("cluster configs", configs, response, err)
	response, err = api.DeleteKafkaClusterConfig(ctx, c.cluster, "log.retention.ms")
	c.show("reset cluster config", nil, response, err)
	own, response, err := api.ClustersClusterIdBrokersBrokerIdConfigsGet(ctx, c.cluster, 1)
	c.show("broker configs", own, response, err)
	_, response, err = c.sdk.BrokerV3Api.ClustersClusterIdBrokersBrokerIdDelete(ctx, c.cluster, 9, nil)
	c.show("remove unknown broker", nil, response, err)
	tasks, response, err := c.sdk.BrokerTaskApi.ClustersClusterIdBrokersTasksGet(ctx, c.cluster)
	c.show("broker tasks", tasks, response, err)
	balancer, response, err := c.sdk.BalancerStatusV3Api.ClustersClusterIdBalancerGet(ctx, c.cluster)
	c.show("balancer", balancer, response, err)
	_, response, err = c.sdk.UnregisterV3Api.ClustersClusterIdBrokersBrokerIdunregisterPost(ctx, c.cluster, 1)
	c.show("unregister a live broker", nil, response, err)
}

func (c caller) deleteTopic(ctx context.Context, topic string) {
	response, err := c.sdk.TopicV3Api.DeleteKafkaTopic(ctx, c.cluster, topic)
	c.show("delete", nil, response, err)
	_, response, err = c.sdk.TopicV3Api.GetKafkaTopic(ctx, c.cluster, topic)
	c.show("get after delete", nil, response, err)
	response, err = c.sdk.TopicV3Api.DeleteKafkaTopic(ctx, c.cluster, topic)
	c.show("delete again", nil, response, err)
}
