import os

# ONNX Runtime would keep a database in the user's home and send what it does to its maker, from the hosts on which is
# measured, too. It reads this when it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
