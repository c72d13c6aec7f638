"""The operations of a namespace: functions of a session and a request; `client.py` documents them."""
