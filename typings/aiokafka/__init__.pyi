from aiokafka.abc import ConsumerRebalanceListener as ConsumerRebalanceListener
from aiokafka.consumer import AIOKafkaConsumer as AIOKafkaConsumer
from aiokafka.producer import AIOKafkaProducer as AIOKafkaProducer
from aiokafka.structs import TopicPartition as TopicPartition
