"""Webhooks: endpoints, deliveries over real HTTP, and what hostile receivers try."""
