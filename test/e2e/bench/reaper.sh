#!/bin/sh
# The reaper that people write first: every two seconds look for pods whose app has ended and whose proxy runs, forward a port to each,
# and ask the agent to quit. One pod after another.
namespace=$1
ask() { # curl --fail --request POST http://127.0.0.1:15020/quitquitquit, where there may be no curl
  case "$(printf 'POST /quitquitquit HTTP/1.0\r\n\r\n' | busybox nc -w 5 127.0.0.1 15020)" in *" 200 "*) ;; *) return 1 ;; esac
}
while true; do
  kubectl --namespace "$namespace" get pods --field-selector status.phase=Running --no-headers --output custom-columns='NAME:.metadata.name,APP:.status.containerStatuses[?(@.name=="app")].state.terminated.exitCode,PROXY:.status.containerStatuses[?(@.name=="istio-proxy")].state.running.startedAt' |
    while read -r pod app proxy; do
      if [ "$app" = "<none>" ] || [ "$proxy" = "<none>" ]; then continue; fi
      kubectl --namespace "$namespace" port-forward "pod/$pod" 15020:15020 </dev/null >/dev/null &
      forward=$!
      for _ in 1 2 3 4 5 6 7 8 9 10; do
        sleep 0.2 # until the local port is open
        if ask; then break; fi
      done
      kill "$forward"
    done
  sleep 2
done
