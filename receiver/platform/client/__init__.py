"""Client of the hosting platform: its REST API, and its gateway to language models.

errors          tree of errors
http_calls      one HTTP call: limits, retries, errors; shared by the API and the gateway
connection      the API: token, team, scopes
core_dumps      forbids core dumps of a process with a token
stream_items    JSON objects in an answer that arrives slowly
event, events   deployment events: read or followed
microfrontends  groups of microfrontends
oauth           exchange of a code for a token
chat, gateway   chat completions and models

Never: puts a token into an error, a log line or the text of an object.
"""
