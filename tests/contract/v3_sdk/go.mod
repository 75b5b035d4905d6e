module leadline/v3sdk

go 1.21

require (
	github.com/antihax/optional v1.0.0
	github.com/confluentinc/kafka-rest-sdk-go/kafkarestv3 v0.3.18
)

require (
	github.com/golang/protobuf v1.2.0 // indirect
	golang.org/x/net v0.0.0-20190108225652-1e06a53dbb7e // indirect
	golang.org/x/oauth2 v0.0.0-20190604053449-0f29369cfe45 // indirect
	google.golang.org/appengine v1.4.0 // indirect
)
