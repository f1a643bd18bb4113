//! The only room that speaks AMQP.
