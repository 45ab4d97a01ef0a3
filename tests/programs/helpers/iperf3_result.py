"""Says of an iperf3 JSON report what must not differ from run to run."""

import json
import sys

with open(sys.argv[1]) as file:
    report = json.load(file)
if "error" in report:
    print("error:", report["error"])
    sys.exit()
end = report["end"]
streams = end["streams"]


def moved(stream):
    """Whether bytes were counted; a UDP stream has one summary, a TCP stream one per end."""
    if "udp" in stream:
        return stream["udp"]["bytes"] > 0
    return stream["sender"]["bytes"] > 0 and stream["receiver"]["bytes"] > 0


idle = sum(not moved(stream) for stream in streams)
print(len(streams), "streams,", idle, "without bytes,", len(report["intervals"]) > 0 and "intervals" or "no intervals")
