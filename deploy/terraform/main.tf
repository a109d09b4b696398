# A trace drain of Vercel that delivers to the receiver. With VERCEL_API_TOKEN set:
#
#   terraform init
#   terraform apply -var host=traces.example.com -var secret_file=secret -var token_file=token
#
# The files are those of the receiver's drain, with `preset = "vercel"`: see docs/connect.md. Terraform keeps
# their content in its state, so the state must be as secret as they are.

terraform {
  required_providers {
    vercel = {
      source = "vercel/vercel"
    }
  }
}

variable "host" {
  description = "Host name of the receiver, with :PORT unless it is 443."
  type        = string
}

variable "secret_file" {
  description = "File with the secret that signs the deliveries."
  type        = string
}

variable "token_file" {
  description = "File with the token of the drain."
  type        = string
}

variable "project_ids" {
  description = "Projects whose traces are delivered. Empty: all."
  type        = set(string)
  default     = []
}

variable "sampling_rules" {
  description = "The first rule that matches a request decides. Requests that match none are dropped; without any rule, all are delivered. The receiver does not know these rates."
  type = list(object({
    rate         = number
    environment  = optional(string)
    request_path = optional(string)
  }))
  default = []
}

resource "vercel_trace_drain" "receiver" {
  name            = "trace-drain-receiver"
  delivery_format = "proto"
  endpoint        = "https://${var.host}/platform/v1/traces"

  project_ids    = length(var.project_ids) > 0 ? var.project_ids : null
  sampling_rules = length(var.sampling_rules) > 0 ? var.sampling_rules : null

  secret = trimspace(file(var.secret_file))
  headers = {
    Authorization = "Bearer ${trimspace(file(var.token_file))}"
  }
}

output "drain_id" {
  value = vercel_trace_drain.receiver.id
}
