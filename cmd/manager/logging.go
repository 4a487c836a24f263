// Copyright The JobMesh Authors.
// SPDX-License-Identifier: Apache-2.0

// How the operator logs.

package main

import (
	"fmt"
	"io"
	"slices"

	"github.com/go-logr/logr"
	"go.uber.org/zap/zapcore"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

type logging struct{ format, level string }

func defaultLogging() logging { return logging{format: "json", level: "info"} }

// levels maps names to zap's levels: logr's V(1) is zap's -1.
var levels = map[string]zapcore.Level{"error": zapcore.ErrorLevel, "info": zapcore.InfoLevel, "debug": zapcore.DebugLevel, "trace": -2}

func (l logging) validate() error {
	if !slices.Contains([]string{"json", "text"}, l.format) {
		return fmt.Errorf("--log-format must be json or text, not %q", l.format)
	}
	if _, ok := levels[l.level]; !ok {
		return fmt.Errorf("--log-level must be error, info, debug or trace, not %q", l.level)
	}
	return nil
}

func (l logging) logger(out io.Writer) logr.Logger {
	return zap.New(zap.WriteTo(out), zap.Level(levels[l.level]), zap.UseDevMode(l.format == "text"), zap.StacktraceLevel(zapcore.PanicLevel))
}
