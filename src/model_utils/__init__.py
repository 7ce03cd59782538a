"""Configuration and the adapters to where a job runs."""
